"""The manifests in README, docs and examples, which readers apply as they are."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
_BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Shown:
    """A manifest, and the file that has it."""

    file: str
    manifest: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file}: {self.manifest['kind']} {self.manifest['metadata']['name']}"


def shown() -> list[Shown]:
    """Returns every manifest in a YAML block of a page or in an example."""
    return list(_shown())


def _shown() -> Iterator[Shown]:
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").iterdir())]:
        text = file.read_text()
        for block in [text] if file.suffix == ".yaml" else _BLOCK.findall(text):
            for manifest in yaml.safe_load_all(block):
                if "metadata" in manifest:  # a program's configuration file has none
                    yield Shown(str(file.relative_to(ROOT)), manifest)
