"""The documentation as a site: `make site` writes it to build/site, which needs no server to be read.

Pages link to files of the repository that are no pages, such as manifests; in the site such a file is a
download, and a folder or a README is only named.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "karpenter-core"
html_title = "karpenter-core"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
myst_linkify_fuzzy_links = False
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
smartquotes = False  # they would make a dash of the two hyphens of an option
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]  # a shell session with a table is no shell syntax

_LOCAL_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)\)")


def name_what_is_no_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace links that a site cannot open, to folders and other Markdown files, by their text."""
    folder = Path(app.srcdir, page).parent

    def without_link(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        is_page = target.is_relative_to(app.srcdir)
        return match[1] if target.is_dir() or (target.suffix == ".md" and not is_page) else match[0]

    source[0] = _LOCAL_LINK.sub(without_link, source[0])


def setup(app: Sphinx) -> None:
    """Register the hook above."""
    app.connect("source-read", name_what_is_no_page)
