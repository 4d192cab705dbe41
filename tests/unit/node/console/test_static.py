"""The files of the pages: whole, small, and nothing in them that the policy would forbid."""

import posixpath
import re

from node.console.site import FOLDER, KINDS, SECURITY, read_files

FILES = {path: file.content.decode() for path, file in read_files().items()}
SCRIPTS = {path: text for path, text in FILES.items() if path.endswith(".js")}


def test_every_file_is_of_a_known_kind_and_served() -> None:
    there = {f"/{one.relative_to(FOLDER).as_posix()}" for one in FOLDER.rglob("*") if one.is_file()}
    assert {path for path in there if not path.endswith(tuple(KINDS))} == set()
    assert there | {"/"} == set(FILES)


def test_whole_site_is_small() -> None:
    assert sum(len(text) for text in FILES.values()) < 200_000


def test_imports_lead_to_files() -> None:
    missing = [
        f"{path}: {target}"
        for path, text in SCRIPTS.items()
        for target in re.findall(r'^import .* from "([^"]+)"', text)
        if posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) not in FILES
    ]
    assert missing == []
    linked = re.findall(r'(?:src|href)="(/[^"]*)"', FILES["/index.html"])
    assert [target for target in linked if target not in FILES] == []


def test_nothing_comes_from_elsewhere() -> None:
    names = {"http://www.w3.org/2000/svg"}  # of the language, not an address that is asked
    found = {
        f"{path}: {url}"
        for path, text in FILES.items()
        for url in re.findall(r"https?://[^\s\"'`)]+", text)
        if url not in names
    }
    assert found == set()


def test_text_never_becomes_markup() -> None:
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\beval\b"
        r"|new Function|setHTML|createContextualFragment|setTimeout\(\s*[\"'`]"
    )
    assert [path for path, text in SCRIPTS.items() if sinks.search(text)] == []


def test_page_has_no_inline_script_or_style() -> None:
    page = FILES["/index.html"]
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []


def test_policy_lets_only_own_files_run_and_nobody_frame() -> None:
    parts = SECURITY["Content-Security-Policy"].split("; ")
    policy = {name: value for name, _, value in (part.partition(" ") for part in parts)}
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in SECURITY["Content-Security-Policy"]
