"""Where the documentation site differs from the files: mkdocs calls this for each page."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_others: Any) -> str:
    """Put the changelog on its page; of links that leave the folder, keep the text."""
    here = "docs/" + page.file.src_uri
    if page.file.src_uri == "changelog.md":
        here = "CHANGELOG.md"
        markdown = CHANGELOG.read_text(encoding="utf-8")

    def moved(link: re.Match[str]) -> str:
        text, target = link.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        if not target.startswith("docs/"):
            return text
        return (
            f"[{text}]({posixpath.relpath(target, 'docs/' + posixpath.dirname(page.file.src_uri))})"
        )

    return LINK.sub(moved, markdown)
