"""What the account owns besides machines: templates, registry logins and background jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from gpuherd.simulator.catalogue import DISK_GB_MAX, CloudCatalogue, RegistryAuth, StoredTemplate
from gpuherd.simulator.create_request import read_envs
from gpuherd.simulator.errors import SimulatedError, invalid, not_found
from gpuherd.simulator.fields import Fields

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class AccountJob:
    """Work in the background that a call left behind."""

    id: str
    kind: str
    machine_id: str
    created_at: float
    done_at: float

    def state(self, now: float) -> str:
        return "success" if now >= self.done_at else "running"


class Account:
    """Templates and registry logins can be changed; official templates belong to the cloud."""

    def __init__(self, catalogue: CloudCatalogue, rng: Random) -> None:
        self._rng = rng
        self._private_images = catalogue.private_images
        self.templates = {template.id: template for template in catalogue.templates}
        self.registry_auths = {auth.id: auth for auth in catalogue.registry_auths}
        self.jobs: list[AccountJob] = []

    def template(self, template_id: str) -> StoredTemplate:
        if template_id not in self.templates:
            raise SimulatedError(400, "TEMPLATE_NOT_FOUND", "template not found")
        return self.templates[template_id]

    def add_template(self, fields: Fields, now: float) -> str:
        template_id = str(1 + max((int(known) for known in self.templates), default=0))
        self.templates[template_id] = self._read_template(fields, template_id, now)
        return template_id

    def change_template(self, fields: Fields) -> str:
        known = self._own_template(fields.text("Id", shortest=1))
        self.templates[known.id] = self._read_template(fields, known.id, known.created_at)
        return known.id

    def remove_template(self, template_id: str) -> str:
        del self.templates[self._own_template(template_id).id]
        return template_id

    def save_registry_auth(self, name: str, username: str, password: str) -> str:
        auth_id = "".join(self._rng.choices(_BASE36, k=32))
        self.registry_auths[auth_id] = RegistryAuth(auth_id, name, username, password)
        return auth_id

    def remove_registry_auth(self, auth_id: str, *, in_use: bool) -> None:
        if auth_id not in self.registry_auths:
            raise not_found("repository auth")
        if in_use or any(template.image_auth_id == auth_id for template in self.templates.values()):
            raise SimulatedError(400, "IMAGE_AUTH_IN_USE", "the image auth is in use")
        del self.registry_auths[auth_id]

    def may_pull(self, image_url: str, image_auth_id: str, image_auth: str = "") -> bool:
        """Return True if the registry would hand out the image for the login that came with the request."""
        for prefix, auth_id in self._private_images:
            if image_url.startswith(prefix):
                auth = self.registry_auths.get(auth_id)
                login = f"{auth.username}:{auth.password}" if auth else None
                return image_auth_id == auth_id or image_auth == login
        return True

    def add_job(self, kind: str, machine_id: str, now: float, done_at: float) -> str:
        job = AccountJob(f"job-{len(self.jobs) + 1}", kind, machine_id, now, done_at)
        self.jobs.append(job)
        return job.id

    def _own_template(self, template_id: str) -> StoredTemplate:
        template = self.template(template_id)
        if template.channel == "official":
            raise SimulatedError(403, "FORBIDDEN", "an official template cannot be changed")
        return template

    def _read_template(self, fields: Fields, template_id: str, now: float) -> StoredTemplate:
        auth_id = fields.text("imageAuth")
        if auth_id and auth_id not in self.registry_auths:
            raise not_found("repository auth")
        plain = StoredTemplate(
            id=template_id,
            name=fields.text("name", shortest=1),
            image=fields.text("image", shortest=1, longest=500),
            created_at=int(now),
        )
        return replace(
            plain,
            readme=fields.text("readme", longest=102_400),
            kind=fields.one_of("type", ("instance", "serverless"), "instance"),
            channel=fields.one_of("channel", ("private", "community"), "private"),
            image_auth_id=auth_id,
            start_command=fields.text("startCommand", longest=2047),
            entrypoint=fields.text("entrypoint", longest=2047),
            disk_gb=fields.whole("rootfsSize", low=1, high=DISK_GB_MAX),
            ports=_read_ports(fields),
            envs=read_envs(fields),
            tools=tuple(
                (tool.text("name"), tool.whole("port", low=1, high=65535), tool.text("type"))
                for tool in fields.items("tools", most=10)
            ),
            min_cuda_version=fields.text("minCudaVersion"),
        )


def _read_ports(fields: Fields) -> tuple[tuple[int, str], ...]:
    ports = [
        (number, entry.one_of("type", ("http", "tcp", "udp"), "http"))
        for entry in fields.items("ports", most=10)
        for number in entry.numbers("ports", most=10, low=1, high=65535)
    ]
    if len(ports) > 10:
        raise invalid("ports", "must not name more than 10 ports")
    return tuple(ports)
