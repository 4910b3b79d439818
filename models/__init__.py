"""Model files: what a GGUF is (header), which file a name means (names), the starter model (starter).

Nothing here loads a model, needs numpy or touches the network unless asked to fetch.
"""
