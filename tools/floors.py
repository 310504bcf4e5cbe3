"""Print the oldest versions that setup.cfg and requirements/ allow.

python tools/floors.py > constraints.txt
pip install -c constraints.txt ".[jax]" -r requirements/test.txt
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]


def floors(text: str) -> set[str]:
    """Return a constraint "name==version" for each "name>=version"."""
    found = re.findall(r"^\s*([\w.-]+)>=([\w.]+)", text, re.MULTILINE)
    return {f"{name}=={version}" for name, version in found}


if __name__ == "__main__":
    files = [ROOT / "setup.cfg", *(ROOT / "requirements").glob("*.txt")]
    text = "\n".join(file.read_text() for file in files)
    print("\n".join(sorted(floors(text))))
