"""The documentation agrees with the repository: links, file names and flags that pages mention exist."""

import re
import runpy
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from configs.commands import BenchmarkConfig, EvaluateConfig, GamesConfig, ReportConfig, ReproduceConfig
from configs.compare import CompareConfig
from configs.tasks import BUILT_IN_TASKS
from configs.train import TrainConfig

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONFIGS = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "compare": CompareConfig,
    "report": ReportConfig,
    "reproduce": ReproduceConfig,
    "benchmark": BenchmarkConfig,
    "games": GamesConfig,
}
FLAGS_OF_ALL = {"--help", "--version"}
SUFFIXES = (".py", ".md", ".json", ".png", ".svg", ".csv", ".html", ".toml", ".yml", ".cff")
PLACEHOLDER = re.compile(r"^runs/|(^|/)[A-Z]+(/|$)")
"""Paths that a user chooses: in `runs/`, or with a part in capitals and without a suffix, such as `DIR/report.html`."""
IN_RUN_DIRECTORY = {"checkpoints/", "pictures/", "videos/"}
WRITTEN_BY_THE_READER = {"my_tasks.py", "my_torsos.py"}
"""The files that docs/adding_a_task.md adds."""
OF_THE_PAGE = "--inverse-dynamics-weight"
"""The flag of its task."""


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def code_spans(text):
    """What stands between single backticks, outside of code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def code_lines(text):
    """Lines of code blocks; those that end with a backslash are joined with the next."""
    return [
        line for block in re.findall(r"```.*?```", text, flags=re.DOTALL) for line in block.replace("\\\n", "").splitlines()
    ]


def anchors(text):
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page, text):
    """Relative links of a page to files or headings that do not exist."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        found = path.is_relative_to(ROOT) and path.exists()
        if not found or (anchor and anchor not in anchors(text if path == page else path.read_text())):
            broken.append(target)
    return broken


def missing_files(text):
    """Paths in backticks, from the root of the repository, that do not exist; of a lone Python file the name must exist."""
    return [span for span in code_spans(text) if _is_path(span) and not _exists(span)]


def _is_path(span):
    if not re.fullmatch(r"\.?\w[\w./*-]*", span) or PLACEHOLDER.search(span):
        return False
    if span in IN_RUN_DIRECTORY | WRITTEN_BY_THE_READER:
        return False
    return span.endswith(("/", ".py")) or ("/" in span and span.endswith(SUFFIXES))


def _exists(path):
    if "/" not in path:
        return path in _python_files()
    return any(True for _ in ROOT.glob(path))


@cache
def _python_files():
    return {path.name for top in ROOT.iterdir() if not top.name.startswith(".") for path in [top, *top.rglob("*.py")]}


def flags_of_config(config):
    """The flags that tyro makes of a dataclass and those inside it."""
    kinds = get_type_hints(config)
    flags = set()
    for name in (field.name for field in fields(config)):
        if is_dataclass(kinds[name]):
            flags |= flags_of_config(kinds[name])
        elif kinds[name] is Any:  # Of the task that is chosen.
            flags = flags.union(*(flags_of_config(kind.config) for kind in BUILT_IN_TASKS.values()), {OF_THE_PAGE})
        else:
            flag = name.replace("_", "-")
            flags |= {f"--{flag}", f"--no-{flag}"} if kinds[name] is bool else {f"--{flag}"}
    return flags


def flags_of_script(module):
    """The flags of a script with argparse; the soak passes all others on to `launch.py train`."""
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    flags = set(re.findall(r'add_argument\("(--[\w-]+)"', source))
    return flags | flags_of_config(TrainConfig) if "parse_known_args" in source else flags


@cache
def known_flags(command):
    """The flags of a command of `launch.py` or of a module; of None, those of any command."""
    if command is None:
        return FLAGS_OF_ALL.union(*map(flags_of_config, CONFIGS.values()))
    return FLAGS_OF_ALL | (flags_of_config(CONFIGS[command]) if command in CONFIGS else flags_of_script(command))


def unknown_flags(text):
    """Flags that no parser knows: in commands of `launch.py` and of our modules those of the command, alone those of any."""
    unknown = []
    commands = "|".join(CONFIGS)
    for code in code_spans(text) + code_lines(text):
        flags = re.findall(r"(?<![\w-])--[a-z][\w-]*", code)
        if found := re.search(rf"launch\.py ({commands})\b|^({commands}) --|python -m (studies\.[\w.]+)", code):
            known = known_flags(found[1] or found[2] or found[3])
        elif code.startswith("--") or "launch.py" in code:
            known = known_flags(None)
        else:
            continue
        unknown += [flag for flag in flags if flag not in known]
    return unknown


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(page):
    assert broken_links(page, page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_pages_name_exist(page):
    assert missing_files(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_flags_that_pages_name_exist(page):
    assert unknown_flags(page.read_text()) == []


def test_the_index_links_to_every_page():
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([\w./-]+\.md)\)", (docs / "README.md").read_text()))
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    assert pages - linked == {"README.md"}


def test_the_architecture_page_names_every_module():
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"]
    modules = [path.relative_to(ROOT) for package in packages for path in package.rglob("*.py") if path.name != "__init__.py"]
    assert len(modules) > 50
    assert [str(path) for path in modules if str(path) not in page and path.parts[:2] != ("agents", "tasks")] == []


def test_the_diagram_is_what_its_script_draws():
    draw = runpy.run_path(str(ROOT / "docs" / "images" / "make_diagram.py"))["draw"]
    assert (ROOT / "docs" / "images" / "architecture.svg").read_text() == draw()


@pytest.mark.parametrize("link", ["missing.md", "docs/missing.png", "../outside.md", "README.md#no-such-heading", "#nowhere"])
def test_a_broken_link_is_found(link):
    assert broken_links(ROOT / "README.md", f"# Title\n\nSee [this]({link}).") == [link]


@pytest.mark.parametrize("link", ["LICENSE", "docs/tasks.md", "#a-title-of-ours", "https://example.org/missing.md"])
def test_a_link_that_resolves_is_accepted(link):
    assert broken_links(ROOT / "README.md", f"# A title, of ours\n\nSee [this]({link}).") == []


@pytest.mark.parametrize("path", ["agents/missing.py", "studies/missing/", "missing.py", "results/missing/*.png"])
def test_a_missing_file_is_found(path):
    assert missing_files(f"See `{path}`.") == [path]


@pytest.mark.parametrize(
    "path",
    ["agents/returns.py", "studies/report/", "returns.py", "results/lambda/*.png", "runs/x/y.json", "DIR/x.md", "charts/games"],
)
def test_existing_files_and_placeholders_are_accepted(path):
    assert missing_files(f"See `{path}`.") == []


@pytest.mark.parametrize(
    "text",
    [
        "`--made-up 3`",
        "`train --made-up`",
        "`python launch.py games --made-up`",
        "```\npython launch.py train --game pong \\\n    --made-up 3\n```",
        "```\npython -m studies.benchmark.learning_curves --made-up\n```",
    ],
)
def test_an_unknown_flag_is_found(text):
    assert unknown_flags(text) == ["--made-up"]


def test_a_flag_of_another_command_is_found():
    assert unknown_flags("`launch.py evaluate --batch-size 3`") == ["--batch-size"]


@pytest.mark.parametrize(
    "text",
    [
        "`--batch-size 3`",
        "`--no-pin-actors`",
        "`compare --vary`",
        "`launch.py --version`",
        "`git log --made-up`",
        "```\npython -m studies.benchmark.soak --seconds 2 --torso shallow\n```",
    ],
)
def test_flags_that_exist_and_those_of_other_programs_are_accepted(text):
    assert unknown_flags(text) == []
