// Requests to the server. Every failure is an Error whose message is one sentence.

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    if (options.signal?.aborted) throw new Error("this was stopped");
    throw new Error("the studio does not respond; check that it is still running");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error ?? `the studio answered ${response.status}`);
}

/** A body to send; `task` is the long task (progress.js) that the request belongs to, if it does. */
function send(type, body, task) {
  const { signal, headers } = task?.options() ?? {};
  return { method: "POST", headers: { "content-type": type, ...headers }, body, signal };
}

const json = (body, task) => send("application/json", JSON.stringify(body), task);

export const get = async (path) => (await request(path)).json();
export const post = async (path, body, task) => (await request(path, json(body, task))).json();
export const getPacked = async (path) => unpack(await (await request(path)).arrayBuffer());
export const postPacked = async (path, body, task) => unpack(await (await request(path, json(body, task))).arrayBuffer());
export const sendBytes = (path, body, task) => request(path, send("application/octet-stream", body, task));
export const sendPacked = async (path, body, task) => unpack(await (await sendBytes(path, body, task)).arrayBuffer());
export const getText = async (path) => (await request(path)).text();

/** An image as a data URL, so that an exported figure has it inside. */
export async function getImage(path) {
  const blob = await (await request(path)).blob(), reader = new FileReader();
  return new Promise((done, fail) => {
    reader.onload = () => done(reader.result);
    reader.onerror = () => fail(new Error("the picture could not be read"));
    reader.readAsDataURL(blob);
  });
}

/** Decode a JSON header and the arrays of 16-bit integers behind it (studio/binary_response.py). */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  header.array = (entry) => {
    const count = entry.shape.reduce((product, each) => product * each, 1);
    const integers = new Uint16Array(buffer, 4 + length + entry.at, count);
    const scale = (entry.high - entry.low) / 65535;
    return Float32Array.from(integers, (each) => entry.low + each * scale);
  };
  return header;
}
