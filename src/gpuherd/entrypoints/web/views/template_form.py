"""The form of a template: what its fields mean to the API."""

from __future__ import annotations

from typing import Any

from gpuherd.entrypoints.web.forms import Form
from gpuherd.entrypoints.web.views.typed_values import typed_envs, typed_number, typed_ports

# These are shown as they are, and so can be emptied; of the others nothing comes back.
SHOWN_FIELDS = ("name", "imageUrl", "registryAuthId", "ports")
KEPT_FIELDS = ("command", "minCudaVersion")
WAS = "was."


def template_body(form: Form) -> dict[str, Any]:
    """Return the template as the API takes it; what was left empty is not said at all."""
    said = {name: form.text(name) for name in (*SHOWN_FIELDS, *KEPT_FIELDS)}
    body: dict[str, Any] = {name: value for name, value in said.items() if value}
    if body.get("ports"):
        body["ports"] = typed_ports(body["ports"])
    if envs := typed_envs(form.text("envs")):
        body["envs"] = envs
    if size := form.text("rootfsSize"):
        body["rootfsSize"] = typed_number(size)
    return body


def template_change(form: Form) -> dict[str, Any]:
    """Return what is different from what the form has shown: what others changed meanwhile stays."""
    body = template_body(form)
    for name in SHOWN_FIELDS:
        # A browser takes line breaks out of what it shows in a field.
        was = form.text(WAS + name).replace("\r", "").replace("\n", "")
        if form.text(name) == was:
            body.pop(name, None)
        elif not form.text(name):
            body[name] = [] if name == "ports" else ""
    if form.text("noEnvs"):
        body["envs"] = {}
    return body
