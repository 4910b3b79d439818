"""Which files of a repository a name means; which names no path is made of."""

from __future__ import annotations

import pytest

from edgespec.errors import BadRequestError, ModelNotFoundError
from edgespec.models.hub_files import RepoFile, choose, models_of, part_paths, quant_of
from edgespec.models.hub_name import HubName


@pytest.mark.parametrize(
    ("path", "quant"),
    [
        ("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("model_q8_0.gguf", "Q8_0"),
        ("Q6_K/big-Q6_K-00001-of-00004.gguf", "Q6_K"),
        ("Qwen3-4B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("Llama-3.2-1B-Instruct-IQ4_XS.gguf", "IQ4_XS"),
        ("m-IQ2_XXS.gguf", "IQ2_XXS"),
        ("Llama-3.2-1B-Q4_0_4_8.gguf", "Q4_0_4_8"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-TQ1_0.gguf", "TQ1_0"),
        ("m.BF16.gguf", "BF16"),
        ("m-f16.gguf", "F16"),
        ("gemma-3-Q4_0-imat.gguf", "Q4_0"),
        ("Q8-Chat-3B.gguf", "Q8"),
        ("plain.gguf", None),
        ("SEQ4_2.gguf", None),
    ],
)
def test_the_quantization_is_read_off_the_name(path: str, quant: str | None) -> None:
    assert quant_of(path) == quant


REPO = models_of(
    RepoFile(path, 10)
    for path in (
        "README.md",
        "M-Q4_K_M.gguf",
        "M-Q4_K_S.gguf",
        "M-Q4_0.gguf",
        "M-Q4_0_4_4.gguf",
        "M-UD-Q4_K_XL.gguf",
        "M-UD-Q2_K.gguf",
        "M-Q2_K.gguf",
        "M-f16-00001-of-00002.gguf",
        "M-f16-00002-of-00002.gguf",
        "M-Q8_0-00001-of-00002.gguf",
        "mmproj-M-Q4_K_M.gguf",
        "M-imatrix.gguf",
    )
)


@pytest.mark.parametrize(
    ("quant", "file"),
    [
        (None, "M-Q4_K_M.gguf"),
        ("q4_k_m", "M-Q4_K_M.gguf"),
        ("Q4_0", "M-Q4_0.gguf"),
        ("Q4_K_XL", "M-UD-Q4_K_XL.gguf"),
        ("ud-q4_k_xl", "M-UD-Q4_K_XL.gguf"),
        ("q2_k", "M-Q2_K.gguf"),
        ("F16", "M-f16-00001-of-00002.gguf"),
    ],
)
def test_a_quantization_means_one_model(quant: str | None, file: str) -> None:
    model = choose(REPO, HubName("u", "r", quant=quant))
    assert model.parts[0].path == file
    assert model.size == 10 * len(model.parts)


@pytest.mark.parametrize("quant", ["Q4_K", "Q8_0", "Q4", "imatrix"])
def test_what_there_is_is_listed_where_it_means_none(quant: str) -> None:
    """A part of a name is not the name, a split model that lacks a part is none, and tools are no models."""
    with pytest.raises(ModelNotFoundError) as caught:
        choose(REPO, HubName("u", "r", quant=quant))
    assert "it has Q2_K, Q4_0, Q4_0_4_4, Q4_K_M, Q4_K_S, UD-Q2_K, UD-Q4_K_XL, F16: name one" in str(caught.value)


def test_other_words_of_a_name_choose_too() -> None:
    models = models_of(map(RepoFile, ("M-base.gguf", "M-chat.gguf", "M-chat-Q4_K_M.gguf", "M-base-Q4_K_M.gguf")))
    assert choose(models, HubName("u", "r", quant="base-q4_k_m")).parts[0].path == "M-base-Q4_K_M.gguf"
    with pytest.raises(ModelNotFoundError, match=r"several models .*: M-base-Q4_K_M\.gguf, M-chat-Q4_K_M\.gguf"):
        choose(models, HubName("u", "r"))


def test_the_only_model_needs_no_quantization() -> None:
    models = models_of([RepoFile("M-Q8_0.gguf"), RepoFile("mmproj.gguf")])
    assert choose(models, HubName("u", "r")).parts[0].path == "M-Q8_0.gguf"
    assert models[0].size is None
    with pytest.raises(ModelNotFoundError, match="no GGUF model"):
        choose((), HubName("u", "r"))


def test_any_part_names_all_of_them() -> None:
    parts = part_paths("a/M-00002-of-00003.gguf")
    assert parts == tuple(f"a/M-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    for odd in ("M-00004-of-00003.gguf", "M-00000-of-00003.gguf", "M-00001-of-99999.gguf", "M-1-of-3.gguf"):
        assert part_paths(odd) == (odd,)


@pytest.mark.parametrize(
    "bad",
    [
        {"user": ".."},
        {"user": "a/b"},
        {"user": ""},
        {"user": "a--b"},
        {"repo": "r..r"},
        {"repo": "-r"},
        {"repo": "r\n"},
        {"repo": "C:"},
        {"file": "../x.gguf"},
        {"file": "a/../x.gguf"},
        {"file": "/etc/x.gguf"},
        {"file": "a//x.gguf"},
        {"file": "a\\..\\x.gguf"},
        {"file": "C:x.gguf"},
        {"file": "a/ /x.gguf"},
        {"file": "a./x\0.gguf"},
        {"file": "x.bin"},
        {"file": "x.gguf", "quant": "Q4_0"},
        {"revision": "../main"},
        {"revision": "/main"},
        {"revision": ""},
        {"revision": "a\\b"},
    ],
)
def test_no_name_leads_out_of_the_cache(bad: dict[str, str]) -> None:
    with pytest.raises(BadRequestError) as caught:
        HubName(**{"user": "u", "repo": "r", **bad})
    assert "\n" not in str(caught.value)


def test_names_that_the_hub_has() -> None:
    HubName("Qwen", "Qwen2.5-Coder-1.5B-Instruct-GGUF", file="q4/x-00001-of-00002.GGUF", revision="refs/pr/3")
    assert HubName("a", "b").repo_id == "a/b"
