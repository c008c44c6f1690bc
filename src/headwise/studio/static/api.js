// Questions to the server. Whatever goes wrong is an Error with one sentence.

async function asked(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("the studio does not answer; is it still running?");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Error(told.error ?? `the studio answered ${answer.status}`);
}

const json = (body) => ({ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

const bytes = (body) => ({ method: "POST", headers: { "content-type": "application/octet-stream" }, body });

export const get = async (path) => (await asked(path)).json();
export const post = async (path, body) => (await asked(path, json(body))).json();
export const getPacked = async (path) => unpacked(await (await asked(path)).arrayBuffer());
export const postPacked = async (path, body) => unpacked(await (await asked(path, json(body))).arrayBuffer());
export const sendBytes = (path, body) => asked(path, bytes(body));
export const sendPacked = async (path, body) => unpacked(await (await sendBytes(path, body)).arrayBuffer());
export const getText = async (path) => (await asked(path)).text();

/** A header in JSON and arrays of 16-bit weights behind it (studio/binary_response.py). */
export function unpacked(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  header.array = (where) => {
    const count = where.shape.reduce((product, each) => product * each, 1);
    const integers = new Uint16Array(buffer, 4 + length + where.at, count);
    const scale = (where.high - where.low) / 65535;
    return Float32Array.from(integers, (each) => where.low + each * scale);
  };
  return header;
}
