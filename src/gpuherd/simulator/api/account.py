"""The endpoints of Novita's v1 API for templates, registry logins, jobs and networks."""

from __future__ import annotations

from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json, job_shape, registry_auth_shape, template_shape
from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.operations import CloudOperations, TemplateQuery
from gpuherd.simulator.views.listing import read_paging


async def list_templates(operations: CloudOperations, query: Values) -> Json:
    fields, paging = Fields(query), read_paging(query)
    # Some clients send several channels joined by commas, some send none.
    channels = tuple(filter(None, fields.text("channel").split(",")))
    templates, total = await operations.templates(TemplateQuery(paging, fields.text("name"), channels))
    return {
        "template": [template_shape(template) for template in templates],
        "pageSize": paging.size,
        "pageNum": paging.number,
        "total": total,
    }


async def get_template(operations: CloudOperations, query: Values) -> Json:
    return {"template": template_shape(await operations.template(Fields(query).known_id("templateId")))}


async def create_template(operations: CloudOperations, body: Values) -> Json:
    return {"templateId": await operations.create_template(Fields(body).item("template"))}


async def update_template(operations: CloudOperations, body: Values) -> Json:
    return {"templateId": await operations.update_template(Fields(body).item("template"))}


async def delete_template(operations: CloudOperations, body: Values) -> Json:
    return {"templateId": await operations.delete_template(Fields(body).text("templateId"))}


async def list_registry_auths(operations: CloudOperations, _: Values) -> Json:
    return {"data": [registry_auth_shape(auth) for auth in await operations.registry_auths()]}


async def save_registry_auth(operations: CloudOperations, body: Values) -> Json:
    fields = Fields(body)
    auth_id = await operations.save_registry_auth(
        fields.text("name", shortest=1),
        fields.text("username", shortest=1, longest=511),
        fields.text("password", shortest=1, longest=1024),
    )
    return {"id": auth_id}


async def delete_registry_auth(operations: CloudOperations, body: Values) -> Json:
    await operations.delete_registry_auth(Fields(body).text("id", shortest=1))
    return {}


async def list_jobs(operations: CloudOperations, query: Values) -> Json:
    fields, paging = Fields(query), read_paging(query)
    job_id, state, kind = fields.text("jobId"), fields.text("state"), fields.text("type")
    now = operations.world.now()
    jobs = [
        job
        for job in await operations.jobs()
        if (not job_id or job.id == job_id)
        and (not state or job.state(now) == state)
        and (not kind or job.kind == kind)
    ]
    page = jobs[paging.offset : paging.offset + paging.size]
    return {"jobs": [job_shape(job, now) for job in page], "total": len(jobs)}


async def list_networks(operations: CloudOperations, _: Values) -> Json:
    await operations.nothing(ApiEndpoint.NETWORKS)
    return {"networks": [], "total": 0}


ACCOUNT_ROUTES = (
    Route("GET", "/templates", list_templates),
    Route("GET", "/template", get_template),
    Route("POST", "/template/create", create_template),
    Route("POST", "/template/update", update_template),
    Route("POST", "/template/delete", delete_template),
    Route("GET", "/repository/auths", list_registry_auths),
    Route("POST", "/repository/auth/save", save_registry_auth),
    Route("POST", "/repository/auth/delete", delete_registry_auth),
    Route("GET", "/jobs", list_jobs),
    Route("GET", "/networks", list_networks),
)
