"""Takes the picture of the dashboard anew, on the simulator: `python -m tools.picture`, in half a minute.

Needs the system's Chromium. Other pages, whole, to look at while they are changed:
`python -m tools.picture /images --out /tmp/images.png --width 390`.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

PICTURE = Path(__file__).parent.parent / "docs" / "dashboard.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1280, 856
PATIENCE_S = 90.0
SPEED = 4
# So that what shall be in motion still is when the picture is taken.
SLOW = {"kind": "slow_pull", "factor": 20}
PRIVATE_IMAGE = "registry.example.com/team/trainer:1.4"
USABLE: tuple[dict[str, Any], ...] = (
    {"name": "llm-serve-eu", "productName": "H100 SXM 80GB", "regions": ["EU-GB-01"], "templateId": "102"},
    {"name": "notebook-anna", "productName": "RTX 4090 24GB", "billingMode": "onDemand", "templateId": "101"},
    {
        "name": "train-vision-7",
        "productName": "RTX 4090 24GB",
        "gpuNum": 2,
        "templateId": "101",
        "healthCheck": {},
    },
)
FAILED = {"name": "render-batch", "productName": "RTX 3090 24GB", "imageUrl": PRIVATE_IMAGE}
MOVING: tuple[dict[str, Any], ...] = (
    {"name": "finetune-42", "productName": "A100 SXM 80GB", "regions": ["EU-DE-01"], "templateId": "101"},
    {"name": "eval-nightly", "productName": "L40S 48GB", "templateId": "101"},
)
TEAMS = {
    "llm-serve-eu": "serving",
    "notebook-anna": "nlp",
    "train-vision-7": "vision",
    "finetune-42": "nlp",
}
FOREIGN = {
    "name": "left-by-hand",
    "productId": "4090.16c62g",
    "gpuNum": 1,
    "rootfsSize": 60,
    "clusterId": "us-ca-6",
    "billingMode": "spot",
    "imageUrl": "docker.io/library/ubuntu:22.04",
}
PREWARMS: tuple[dict[str, Any], ...] = (
    {"imageUrl": "docker.io/vllm/vllm-openai:v0.8.4", "region": "AS-SGP-02", "note": "serving"},
    {"imageUrl": PRIVATE_IMAGE, "region": "US-CA-06"},
)


class Api:
    """Whoever asks a server for JSON."""

    def __init__(self, url: str, key: str):
        self.url = url
        self._key = key

    def __call__(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310  loopback
        try:
            with urllib.request.urlopen(asked, timeout=2 * PATIENCE_S) as reply:  # noqa: S310
                return json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as refused:
            refused.add_note(f"{method} {path}: {refused.read().decode()}")
            raise

    def await_answer(self, path: str) -> None:
        """Wait until it is up."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self("GET", path)
            except urllib.error.URLError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
            else:
                return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(directory: Path, *words: str, **env: str) -> Iterator[None]:
    """Run a command of gpuherd, and end it with the block."""
    with (directory / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  our own
            [sys.executable, "-m", "gpuherd", *words],
            env={"PATH": os.environ["PATH"], "HOME": str(directory), **env},
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def rent(api: Api, wish: Mapping[str, Any]) -> str:
    team = TEAMS.get(wish["name"])
    return str(api("POST", "/api/instances", {**wish, "labels": {"team": team} if team else {}})["id"])


def fill(api: Api, novita: Api) -> None:
    """Make a day with something usable, something failed, something in motion and something of nobody."""
    novita("POST", "/gpu-instance/openapi/v1/gpu/instance/create", FOREIGN)
    for task in PREWARMS:
        api("POST", "/api/prewarms", task)
    # A failed one is waited for in the same way: it never will be usable.
    for instance_id in [rent(api, wish) for wish in (*USABLE, FAILED)]:
        api("GET", f"/api/instances/{instance_id}?wait=ready&timeout={PATIENCE_S:.0f}")
    api("POST", "/api/sync")
    novita("POST", "/_simulator/faults", SLOW)
    for wish in MOVING:
        rent(api, wish)
    time.sleep(6)


def take(browser: Browser, base_url: str, key: str, path: str, size: tuple[int, int], out: Path) -> None:
    """Sign in and take the picture: of the window, or of all of a page that somebody works on."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page.goto(f"{base_url}/login")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{base_url}/")
    page.goto(base_url + path)
    page.wait_for_timeout(2000)
    page.screenshot(path=out, full_page=path != "/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", default="/")
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--width", type=int, default=WIDTH)
    asked = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        sys.exit(f"needs one of {', '.join(BROWSERS)}")
    cloud_key, key = (f"{prefix}_{secrets.token_hex(16)}" for prefix in ("sk", "ghk"))
    ports = (free_port(), free_port())
    novita, api = (
        Api(f"http://127.0.0.1:{port}", known) for port, known in zip(ports, (cloud_key, key), strict=True)
    )
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        words = ("simulator", "--port", str(ports[0]), "--speed", str(SPEED), "--seed", "7")
        stack.enter_context(running(directory, *words))
        novita.await_answer("/_simulator/state")
        settings = {
            "NOVITA_API_KEY": cloud_key,
            "NOVITA_API_BASE_URL": novita.url,
            "GPUHERD_DATA_DIR": str(directory / "data"),
            "GPUHERD_PORT": str(ports[1]),
            "GPUHERD_ADMIN_KEY": key,
            "GPUHERD_ALLOW_PRIVATE_TARGETS": "127.0.0.0/8",
        }
        stack.enter_context(running(directory, "serve", **settings))
        api.await_answer("/health")
        fill(api, novita)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        take(browser, api.url, key, asked.path, (asked.width, HEIGHT), asked.out)
        browser.close()


if __name__ == "__main__":
    main()
