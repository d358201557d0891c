"""Modules stay short enough to be read at once."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 500


def product_modules() -> list[Path]:
    """Return the modules of the core and of the providers, without their tests."""
    found = [*(ROOT / "karpenter_core").rglob("*.py"), *(ROOT / "providers").rglob("*.py")]
    return [file for file in found if "tests" not in file.relative_to(ROOT).parts]


def test_no_module_of_the_product_is_longer_than_500_lines():
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines())
        for file in product_modules()
    }
    assert len(lengths) > 1000  # the modules were found
    assert not {file: length for file, length in lengths.items() if length > LONGEST}
