"""The endpoints of Novita's v1 API for templates, registry logins, jobs and networks."""

from __future__ import annotations

from gpuherd.simulator.api.routes import Route, Values
from gpuherd.simulator.api.shapes import Json, job_shape, registry_auth_shape, template_shape
from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.fault_injection import ask
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.views.listing import read_paging
from gpuherd.simulator.world.world import World


async def list_templates(world: World, query: Values) -> Json:
    """Return one page of templates, newest first."""
    fields, paging = Fields(query), read_paging(query)
    name = fields.text("name").casefold()
    # Some clients send several channels joined by commas, some send none.
    channels = tuple(filter(None, fields.text("channel").split(",")))
    templates = await ask(world, ApiEndpoint.TEMPLATES, lambda: [*reversed(world.account.templates.values())])
    matching = [
        template
        for template in templates
        if name in template.name.casefold() and (not channels or template.channel in channels)
    ]
    return {
        "template": [template_shape(template) for template in paging.cut(matching)],
        "pageSize": paging.size,
        "pageNum": paging.number,
        "total": len(matching),
    }


async def get_template(world: World, query: Values) -> Json:
    template_id = Fields(query).known_id("templateId")
    template = await ask(world, ApiEndpoint.TEMPLATE, lambda: world.account.template(template_id))
    return {"template": template_shape(template)}


async def create_template(world: World, body: Values) -> Json:
    template, now = Fields(body).item("template"), world.now()
    made = await ask(world, ApiEndpoint.TEMPLATE_CREATE, lambda: world.account.add_template(template, now))
    return {"templateId": made}


async def update_template(world: World, body: Values) -> Json:
    template = Fields(body).item("template")
    changed = await ask(world, ApiEndpoint.TEMPLATE_UPDATE, lambda: world.account.change_template(template))
    return {"templateId": changed}


async def delete_template(world: World, body: Values) -> Json:
    template_id = Fields(body).text("templateId")
    gone = await ask(world, ApiEndpoint.TEMPLATE_DELETE, lambda: world.account.remove_template(template_id))
    return {"templateId": gone}


async def list_registry_auths(world: World, _: Values) -> Json:
    auths = await ask(world, ApiEndpoint.REGISTRY_AUTHS, lambda: [*world.account.registry_auths.values()])
    return {"data": [registry_auth_shape(auth) for auth in auths]}


async def save_registry_auth(world: World, body: Values) -> Json:
    fields = Fields(body)
    name = fields.text("name", shortest=1)
    username = fields.text("username", shortest=1, longest=511)
    password = fields.text("password", shortest=1, longest=1024)
    account = world.account
    return {
        "id": await ask(
            world, ApiEndpoint.REGISTRY_SAVE, lambda: account.save_registry_auth(name, username, password)
        )
    }


async def delete_registry_auth(world: World, body: Values) -> Json:
    auth_id = Fields(body).text("id", shortest=1)
    in_use = any(machine.request.image_auth_id == auth_id for machine in world.alive())
    account = world.account
    await ask(
        world, ApiEndpoint.REGISTRY_DELETE, lambda: account.remove_registry_auth(auth_id, in_use=in_use)
    )
    return {}


async def list_jobs(world: World, query: Values) -> Json:
    fields, paging = Fields(query), read_paging(query)
    job_id, state, kind = fields.text("jobId"), fields.text("state"), fields.text("type")
    now = world.now()
    jobs = [
        job
        for job in await ask(world, ApiEndpoint.JOBS, lambda: [*reversed(world.account.jobs)])
        if (not job_id or job.id == job_id)
        and (not state or job.state(now) == state)
        and (not kind or job.kind == kind)
    ]
    return {"jobs": [job_shape(job, now) for job in paging.cut(jobs)], "total": len(jobs)}


async def list_networks(world: World, _: Values) -> Json:
    """Answer that the account has no networks."""
    await ask(world, ApiEndpoint.NETWORKS, lambda: None)
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
