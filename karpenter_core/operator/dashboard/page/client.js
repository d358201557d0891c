// Asks the controller for documents and events, with a token if it needs one.

const BASE = "dashboard/v1";
const SILENCE = 40000; // the server sends something every 15 s

let token = "";

export const hasToken = () => token !== "";
export const setToken = (text) => { token = text; };

class HttpError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function request(path, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(`${BASE}/${path}`, { headers, cache: "no-store", credentials: "same-origin", ...options });
  if (response.ok) return response;
  let message = response.statusText;
  try {
    message = (await response.json()).error ?? message;
  } catch { /* the answer of something in between */ }
  throw new HttpError(response.status, message);
}

export const fetchJson = async (path) => (await request(path)).json();
export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export async function* readEvents(response, abort) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const timer = setTimeout(() => abort.abort(), SILENCE);
    const { value, done } = await reader.read();
    clearTimeout(timer);
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const found = /^event: (\w+)\ndata: (.*)$/.exec(block);
      if (found) yield [found[1], JSON.parse(found[2])];
    }
  }
}
