"""The built site in a real browser: everything loads, nothing complains, a phone can read it.

Build it first (``make docs``), or name the folder of a built site in SKICML_SITE.
"""

import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import Page, find_chromium, open_browser

SITE = Path(os.environ.get("SKICML_SITE", Path(__file__).parent.parent / "docs/_build/html"))
WIDTHS = {"desktop": 1280, "phone": 390}

pytestmark = [
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason=f"no site is built in {SITE}"),
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed"),
]


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def site():
    """Address of the site, served from this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    with open_browser(find_chromium(), tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="session", params=WIDTHS)
def page(browser, request):
    page = Page(browser, WIDTHS[request.param])
    yield page
    page.close()


def _kinds_of_pages():
    """One page of every kind."""
    first = {
        "example": "auto_examples/*/plot_*.html",
        "estimator": "reference/skicml.information.LSMI.html",
        "function": "reference/skicml.metrics.*_score.html",
    }
    found = {kind: next(iter(sorted(SITE.glob(pattern))), None) for kind, pattern in first.items()}
    pages = {kind: path.relative_to(SITE).as_posix() for kind, path in found.items() if path}
    return {
        "landing": "index.html",
        "installation": "install.html",
        "choice": "choosing.html",
        "gallery": "auto_examples/index.html",
        "guide": "user_guide/cluster.html",
        "reference": "reference/index.html",
        "evidence": "evidence/index.html",
        **pages,
    }


BROKEN_IMAGES = "[...document.images].filter(i => i.naturalWidth == 0).map(i => i.src)"
# What sticks out on the right, unless something that scrolls holds it.
STICKING_OUT = """
[...document.querySelectorAll('.bd-main *')].filter(element => {
  const right = element.getBoundingClientRect().right;
  if (right <= document.documentElement.clientWidth + 1) return false;
  for (let parent = element; parent; parent = parent.parentElement)
    if (getComputedStyle(parent).overflowX != 'visible') return false;
  return true;
}).map(element => element.tagName + '.' + element.className)
"""


@pytest.mark.parametrize("kind", _kinds_of_pages())
def test_a_page_of_each_kind(page, site, kind):
    page.open(f"{site}/{_kinds_of_pages()[kind]}")
    assert page.complaints() == []
    assert [url for url in page.requests() if not url.startswith((site, "data:"))] == []
    assert page.run(BROKEN_IMAGES) == []
    assert page.run("document.querySelector('h1').innerText.length") > 3
    assert page.run(STICKING_OUT) == []
    assert page.run("document.documentElement.scrollWidth") <= page.width


def test_the_landing_page_leads_on(page, site):
    page.open(f"{site}/index.html")
    links = page.run("[...document.querySelectorAll('.bd-article a')].map(a => a.href)")
    for target in ("install.html", "user_guide/", "auto_examples/", "reference/"):
        assert any(link.startswith(f"{site}/{target}") for link in links), target


def test_every_example_has_a_thumbnail(page, site):
    page.open(f"{site}/auto_examples/index.html")
    thumbnails = "[...document.querySelectorAll('.sphx-glr-thumbcontainer img')]"
    shown = page.run(f"{thumbnails}.filter(image => image.width > 50).length")
    assert shown == len([*SITE.glob("_downloads/*/*.py")])


def test_search_finds_an_estimator(page, site):
    page.open(f"{site}/search.html?q=LSMI")
    page.wait_until("document.querySelectorAll('#search-results li a').length > 0")
    found = page.run("[...document.querySelectorAll('#search-results li a')].map(a => a.href)")
    assert any("skicml.information.LSMI" in link for link in found)
    assert page.complaints() == []


def test_the_theme_can_be_switched(page, site):
    page.open(f"{site}/index.html")
    background = "getComputedStyle(document.body).backgroundColor"
    colours = set()
    for theme in ("light", "dark"):
        page.run(f"document.documentElement.dataset.theme = '{theme}'")
        colours.add(page.run(background))
    assert len(colours) == 2
    assert page.complaints() == []
