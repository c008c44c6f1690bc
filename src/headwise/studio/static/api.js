// Requests to the server. Every failure is an Error whose message is one sentence.

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the studio does not respond; check that it is still running");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error ?? `the studio answered ${response.status}`);
}

const json = (body) => ({ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

const binary = (body) => ({ method: "POST", headers: { "content-type": "application/octet-stream" }, body });

export const get = async (path) => (await request(path)).json();
export const post = async (path, body) => (await request(path, json(body))).json();
export const getPacked = async (path) => unpack(await (await request(path)).arrayBuffer());
export const postPacked = async (path, body) => unpack(await (await request(path, json(body))).arrayBuffer());
export const sendBytes = (path, body) => request(path, binary(body));
export const sendPacked = async (path, body) => unpack(await (await sendBytes(path, body)).arrayBuffer());
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
