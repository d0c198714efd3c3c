"""Files and folders stay small enough to be taken in at a glance."""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIRECTORIES = (
    "actors", "agents", "configs", "docs", "envs", "examples", "learners", "retrospective", "studies", "tests", "training",
)  # fmt: skip
MAX_LINES = 350
MAX_FILES = 14


def files(suffixes=(".py", ".md", ".svg", ".json", ".csv", ".toml")):
    top = [path for path in ROOT.iterdir() if path.suffix in suffixes]
    nested = [path for name in DIRECTORIES for path in (ROOT / name).rglob("*") if path.suffix in suffixes]
    return [path for path in top + nested if "old_formats" not in path.parts]


def test_no_file_of_code_is_long():
    lines = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in files((".py",))}
    assert len(lines) > 200
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_no_folder_holds_many_files():
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in files())
    assert len(folders) > 20
    assert {folder: count for folder, count in folders.items() if count > MAX_FILES} == {}
