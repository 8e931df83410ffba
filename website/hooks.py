"""What MkDocs is told beside mkdocs.yml: pages from elsewhere in the checkout, and those generated from the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from provisioner.api.crd import all_crds
from provisioner.cli.main import kubectl, provisioner
from website.links import relink
from website.reference.commands import commands_page
from website.reference.kinds import kind_page, kinds_index, page_name

CHECKOUT: Final = Path(__file__).parent.parent
ELSEWHERE: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "tests/benchmarks/RESULTS.md": "figures/index.md",
}
"""Files of the checkout outside of docs/ that are pages, and which."""
KINDS: Final = "reference/api"
COMMANDS: Final = "reference/commands"


def generated_pages() -> dict[str, str]:
    """Page → Markdown of all that is generated from the code."""
    crds = all_crds()
    pages = {f"{KINDS}/index.md": kinds_index(crds)}
    pages |= {f"{KINDS}/{page_name(crd)}": kind_page(crd) for crd in crds}
    pages[f"{COMMANDS}/provisioner.md"] = commands_page(provisioner, "provisioner")
    pages[f"{COMMANDS}/kubectl-provision.md"] = commands_page(kubectl, "kubectl provision")
    return pages


def shown_files() -> dict[str, str]:
    """File of the checkout → page or asset of the site, of all that the site shows as it is."""
    docs = CHECKOUT / "docs"
    shown = {
        f"docs/{path.relative_to(docs)}": str(path.relative_to(docs)) for path in docs.rglob("*") if path.is_file()
    }
    results = CHECKOUT / "tests/benchmarks/results"
    shown |= {f"tests/benchmarks/results/{path.name}": f"figures/{path.name}" for path in results.iterdir()}
    return shown | ELSEWHERE


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what does not lie in docs/."""
    for page, text in generated_pages().items():
        files.append(File.generated(config, page, content=text))
    for source, page in shown_files().items():
        if not source.startswith("docs/"):
            files.append(File.generated(config, page, abs_src_path=str(CHECKOUT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the checkout become links between pages."""
    del config, files
    shown = shown_files()
    sources = {target: source for source, target in shown.items()}
    source = sources.get(page.file.src_uri)
    if source is None:
        return markdown
    return relink(markdown, source=source, page=page.file.src_uri, pages=shown, checkout=CHECKOUT)


def on_config(config: MkDocsConfig) -> Any:
    """The version that the pages are of."""
    from provisioner import __version__

    config.extra["version_of_product"] = __version__
    config.copyright = f"provisioner {__version__}"
    return config
