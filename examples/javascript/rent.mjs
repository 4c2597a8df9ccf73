// Rent a GPU, wait until it can be used, print how to reach it, and stop it. Needs nothing but Node 18.
//
//     GPUHERD_API_KEY=... node rent.mjs [NAME] [WEBHOOK_URL]

import { randomUUID } from "node:crypto";

const url = (process.env.GPUHERD_URL ?? "http://127.0.0.1:8080").replace(/\/+$/, "");
const key = process.env.GPUHERD_API_KEY ?? "";
// The server holds a question back for so long; our own patience with one answer must be longer.
const LONG_POLL_S = 30;
const PATIENCE_MS = 30 * 60 * 1000;

class Refused extends Error {}

async function call(method, path, body, headers = {}) {
  const reply = await fetch(url + path, {
    method,
    headers: {
      Authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout((LONG_POLL_S + 15) * 1000),
  });
  const answer = await reply.json();
  if (!reply.ok) {
    throw new Refused(`gpuherd says ${reply.status} ${answer.code}: ${answer.detail}`);
  }
  return answer;
}

// The key makes it safe to ask again when an answer got lost: it is still one instance.
async function create(wish) {
  const idempotencyKey = randomUUID();
  for (let triesLeft = 2; ; triesLeft -= 1) {
    try {
      return await call("POST", "/api/instances", wish, { "Idempotency-Key": idempotencyKey });
    } catch (error) {
      if (error instanceof Refused || triesLeft === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

// Returns the instance when it is `what` (ready, exited, deleted), or when it will not become so.
async function wait(id, what) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const instance = await call("GET", `/api/instances/${id}?wait=${what}&timeout=${LONG_POLL_S}`);
    console.log(instance.status.padEnd(16), instance.statusReason ?? "");
    const done = what === "ready" ? instance.usable : instance.status === what;
    const hopeless = ["failed", "exited", "deleted"].includes(instance.status);
    if (done || hopeless || Date.now() > deadline) return instance;
  }
}

async function main([name = "example-javascript", webhookUrl]) {
  const accepted = await create({
    name,
    productName: "RTX 4090 24GB",
    templateId: "101",
    maxHourlyPrice: 1.0,
    ...(webhookUrl ? { webhookUrl } : {}),
  });
  console.log(`accepted as ${accepted.id}`);
  const instance = await wait(accepted.id, "ready");
  if (!instance.usable) throw new Refused(`not usable: ${instance.statusReason}`);
  console.log(`ready: ${instance.productName} in ${instance.region} for $${instance.hourlyPrice}/h`);
  for (const [way, address] of Object.entries(instance.connectionDetails)) {
    if (address) console.log(`  ${way}: ${address}`);
  }
  for (const { port, endpoint } of instance.portMappings) console.log(`  port ${port}: ${endpoint}`);

  // Here your work would be done.

  await call("POST", `/api/instances/${instance.id}/stop`);
  const stopped = await wait(instance.id, "exited");
  if (stopped.status !== "exited") throw new Refused(`not stopped: ${stopped.statusReason}`);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error instanceof Refused ? error.message : `cannot reach gpuherd at ${url}: ${error.message}`);
  process.exitCode = 1;
});
