"""`/instances/new`: the form with which a person rents, the plan of it, and the order itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.cloud.offer import BillingMode, Region, Template, TemplateUnusable, check_template
from gpuherd.domain.errors import CloudError, FieldProblem, GpuherdError, InvalidRequest
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.problems import problem_of
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.launch import LaunchBody, PlanBody
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.wish_form import (
    FormValues,
    default_values,
    form_values,
    launch_body_of,
    problems_by_field,
)


async def show(request: Request) -> Response:
    """Show an empty form, or what the link to it has filled in."""
    said = dict(request.query_params)
    return await _form(request, default_values(said, said.get("region", "")))


async def rent(request: Request) -> Response:
    """Rent it. The same form sent twice rents once."""
    form, plane, caller = form_of(request), plane_of(request), acting_caller(request)
    filled = form_values(form)
    body = launch_body_of(filled)
    try:
        claim = plane.keys.claim_request(caller.key_id, _form_key(form.text("once")), "form", body=body)
        wanted = LaunchBody.parse(body, plane.targets).to_request(claim=claim, caller=caller)
        launched = await plane.launch_instance(wanted)
    except InvalidRequest as error:
        return await _form(request, filled, status=400, problems=problems_by_field(error.problems))
    except GpuherdError as error:
        problem = problem_of(error)
        return await _form(request, filled, status=problem.status, refusal=error.message)
    return done(f"/instances/{launched.instance.id}", "rent")


async def plan(request: Request) -> Response:
    """Show what would be tried, in which order, for how much; nothing is rented."""
    plane, filled = plane_of(request), form_values(form_of(request))
    runs = filled.fields["templateId"] or filled.fields["imageUrl"]
    if not filled.fields["productName"] or not runs:
        return page(request, "plan.html", plan=None, refusal="")
    try:
        wanted = PlanBody.parse(launch_body_of(filled), plane.targets)
        made = await plane.plan_launch(wanted.to_request(caller=acting_caller(request)))
    except InvalidRequest as error:
        wrong = "; ".join(f"{field}: {said}" for field, said in problems_by_field(error.problems).items())
        return page(request, "plan.html", plan=None, refusal=wrong)
    except GpuherdError as error:
        return page(request, "plan.html", plan=None, refusal=error.message)
    return page(request, "plan.html", plan=made, refusal="")


def _form_key(once: str) -> str:
    """Return the idempotency key of a form: each one that is shown has a word of its own."""
    if not once.isascii() or not once.isalnum() or len(once) > 100:
        raise InvalidRequest([FieldProblem("form", "INVALID_FORM", "this form is not ours; open it anew")])
    return f"form-{once}"


async def _form(
    request: Request,
    filled: FormValues,
    *,
    status: int = 200,
    problems: Mapping[str, str] | None = None,
    refusal: str = "",
) -> Response:
    plane = plane_of(request)
    products, templates, regions, unknown = await _catalogue(plane)
    return page(
        request,
        "rent.html",
        status=status,
        filled=filled,
        problems=problems or {},
        refusal=refusal,
        # A form that was refused is sent again as another one.
        once=plane.ids.new(),
        products=products,
        templates=templates,
        regions=regions,
        unknown=unknown,
    )


async def _catalogue(plane: Plane) -> tuple[list[str], list[Template], Sequence[Region], str]:
    """Return what can be chosen from; without the cloud, the fields can still be typed into."""
    try:
        offers = await plane.catalogue.offers(BillingMode.SPOT)
        templates = [it for it in await plane.catalogue.templates() if _is_usable(it)]
        return sorted({it.product_name for it in offers}), templates, await plane.catalogue.regions(), ""
    except CloudError as error:
        return [], [], (), error.message


def _is_usable(template: Template) -> bool:
    try:
        check_template(template)
    except TemplateUnusable:
        return False
    return True


ROUTES: Routes = {
    ("GET", "/instances/new"): show,
    ("POST", "/instances/new"): rent,
    ("POST", "/instances/plan"): plan,
}
