"""Model files: what a GGUF is (header), which models we know (catalog), which file a name means (names), and how one
is fetched (pulling).

Nothing here loads a model, needs numpy or touches the network unless asked to fetch.
"""
