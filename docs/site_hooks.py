"""What MkDocs calls when it builds the site: the repository is its source, so links between files
need no rewriting.

Source: docs/navigation.py for the pages; https://www.mkdocs.org/user-guide/configuration/#hooks for
    the names.
"""

from __future__ import annotations

import re
from typing import Any

from mkdocs.structure.files import File, Files

from drawings.markdown import anchor
from navigation import ROOT, address, linked_files, pages, sections


def on_config(config: Any) -> Any:
    """Headings get the anchors that forges make, which links use."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda text, _: anchor(text)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Replace the files of docs/ by the pages and what they link to, each under its path in the
    repository.
    """
    config.nav = [{title: paths} for title, paths in sections().items()]
    found = pages()
    theme = [
        file
        for file in files
        if file.abs_src_path is None or not file.abs_src_path.startswith(config.docs_dir)
    ]
    return Files([*theme, *(_file(path, config) for path in (*found, *linked_files(found)))])


def on_page_content(html: str, **_: Any) -> str:
    """A bar that is escaped because it is in a table is shown as a bar, also in code, as on
    forges.
    """
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.DOTALL)


def _file(path: str, config: Any) -> File:
    usual = File(path, str(ROOT), config.site_dir, config.use_directory_urls)
    return File(
        path,
        str(ROOT),
        config.site_dir,
        config.use_directory_urls,
        dest_uri=address(usual.dest_uri),
    )
