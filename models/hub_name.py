"""What a name on the Hugging Face Hub says: a repository, and which of its files."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import BadRequestError
from .filenames import is_safe
from .quoting import quoted

DEFAULT_QUANT = "Q4_K_M"

# As the Hub itself allows them. Two dashes in a row part user and repository in the names of cache folders.
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")


@dataclass(frozen=True, slots=True)
class HubName:
    """A model on the Hub. quant: such as Q4_K_M, any case.  file: path in the repository, then quant is None.

    revision: branch, tag or commit.  With neither quant nor file it is the Q4_K_M, or the only model there is.
    Raises BadRequestError for parts that the Hub cannot have, and for all that would lead out of a folder.
    """

    user: str
    repo: str
    quant: str | None = None
    file: str | None = None
    revision: str = "main"

    def __post_init__(self) -> None:
        for part in (self.user, self.repo):
            if not _PART.fullmatch(part) or "--" in part or ".." in part:
                raise BadRequestError(f"{quoted(part)} is no name on the Hugging Face Hub; write USER/REPOSITORY")
        if not _inside(self.revision):
            raise BadRequestError(f"{quoted(self.revision)} is no revision; give a branch, a tag or a commit")
        if self.file is not None:
            if not _inside(self.file):
                raise BadRequestError(f"{quoted(self.file)} is no path inside a repository; write FOLDER/FILE.gguf")
            if not self.file.lower().endswith(".gguf"):
                raise BadRequestError(f"{quoted(self.file)} is no GGUF file; name one that ends in .gguf")
            if self.quant is not None:
                raise BadRequestError("a name says a file or a quantization, not both")

    @property
    def repo_id(self) -> str:
        """user/repo."""
        return f"{self.user}/{self.repo}"

    @property
    def canonical(self) -> str:
        """The one spelling of this name; a quantization that was not said is the default one."""
        at = "" if self.revision == "main" else f"@{self.revision}"
        which = f":{(self.quant or DEFAULT_QUANT).upper()}" if self.file is None else f"/{self.file}"
        return f"hf:{self.repo_id}{at}{which}"


def _inside(path: str) -> bool:
    """These names become paths in the cache."""
    return all(is_safe(part) for part in path.split("/"))
