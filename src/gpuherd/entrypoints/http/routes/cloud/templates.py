"""Changes to `/api/templates`: make one, change one, delete one."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.http.json_body import read_object
from gpuherd.entrypoints.replies import json_reply, plane_of
from gpuherd.entrypoints.schemas.openapi import takes
from gpuherd.entrypoints.schemas.workload import TemplateBody, TemplateChangeBody
from gpuherd.usecases.describe.catalogue import describe_template

router = APIRouter(prefix="/api/templates", tags=["catalogue"])


@router.post("", status_code=201, openapi_extra=takes(TemplateBody))
async def create(request: Request) -> Response:
    """Make a template of your account; its name must be free. The cloud keeps its variables in the clear."""
    draft = TemplateBody.parse(await read_object(request)).to_draft()
    made = await plane_of(request).images.templates.create(draft, acting_caller(request))
    return json_reply(describe_template(made), status=201)


@router.patch("/{template_id}", openapi_extra=takes(TemplateChangeBody))
async def change(template_id: str, request: Request) -> Response:
    """Change a template of your account; what is left out stays. Machines that run are not touched."""
    draft = TemplateChangeBody.parse(await read_object(request)).to_draft()
    changed = await plane_of(request).images.templates.change(template_id, draft, acting_caller(request))
    return json_reply(describe_template(changed))


@router.delete("/{template_id}")
async def delete(template_id: str, request: Request) -> Response:
    """Delete a template of your account. Machines that were made from it stay."""
    return json_reply(await plane_of(request).images.templates.delete(template_id, acting_caller(request)))
