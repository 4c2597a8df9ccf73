// Receive gpuherd's webhooks, believe only those with a good signature, and print them. Needs nothing but Node 18.
//
//     WEBHOOK_SECRET=whsec_... node verify_webhook.mjs [PORT]
//
// Or take only the check: import { verify } from "./verify_webhook.mjs".
// gpuherd delivers at least once: an event may come twice (same webhook-id) or late (lower data.sequence).

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const TOLERANCE_S = 300;
const BODY_MAX_BYTES = 1024 * 1024;

// After whsec_ comes base64, anything else is taken as it is.
function keyOf(secret) {
  return secret.startsWith("whsec_") ? Buffer.from(secret.slice("whsec_".length), "base64") : Buffer.from(secret);
}

// Throws unless the message is genuine and fresh. `body` is a Buffer with the very bytes that came, `headers`
// has names in lower case, as Node gives them.
export function verify(secret, headers, body, nowS = Date.now() / 1000) {
  const id = headers["webhook-id"] ?? "";
  const timestamp = headers["webhook-timestamp"] ?? "";
  const given = headers["webhook-signature"] ?? "";
  if (!id || !/^[0-9]{1,12}$/.test(timestamp)) throw new Error("a header is missing or malformed");
  // An old message with a good signature may have been recorded and sent again by somebody else.
  if (Math.abs(nowS - Number(timestamp)) > TOLERANCE_S) throw new Error("the timestamp is not from now");
  const digest = createHmac("sha256", keyOf(secret)).update(`${id}.${timestamp}.`).update(body).digest();
  const expected = Buffer.from(`v1,${digest.toString("base64")}`);
  // There is one signature for each secret in use. timingSafeEqual wants equal lengths, and those are no secret.
  const matches = given
    .split(" ")
    .map((one) => Buffer.from(one))
    .map((one) => one.length === expected.length && timingSafeEqual(one, expected));
  if (!matches.includes(true)) throw new Error("no signature fits");
}

async function bodyOf(request) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size > BODY_MAX_BYTES) throw new Error("the body is too large");
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function main() {
  const secret = process.env.WEBHOOK_SECRET;
  if (!secret) {
    console.error("set WEBHOOK_SECRET to the secret of your gpuherd server");
    process.exitCode = 1;
    return;
  }
  const server = createServer(async (request, response) => {
    try {
      const body = await bodyOf(request);
      verify(secret, request.headers, body);
      const { type, data } = JSON.parse(body);
      // As JSON, so that no name can do anything to a terminal or a log.
      console.log(JSON.stringify({ type, name: data.name, status: data.status, sequence: data.sequence }));
      response.writeHead(204).end();
    } catch (error) {
      console.log(`refused: ${error.message}`);
      response.writeHead(401, { Connection: "close" }).end();
    }
  });
  server.listen(Number(process.argv[2] ?? 9000), "127.0.0.1", () => {
    console.log(`listening on http://127.0.0.1:${server.address().port}/`);
  });
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) main();
