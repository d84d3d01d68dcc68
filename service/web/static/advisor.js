"use strict";
// Only adds: every page works without it. Copy buttons, live progress, completion of several GPUs, the deletion key.

for (const box of document.querySelectorAll(".copy")) {
  if (!box.querySelector("pre")) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  const title = box.querySelector("h2, h3, h4");
  if (title) button.setAttribute("aria-label", "Copy: " + title.firstChild.textContent.trim());
  button.addEventListener("click", async () => {
    const code = box.querySelector("pre");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  box.insertBefore(button, box.querySelector("pre"));
}

const followed = document.getElementById("follow");
if (followed) {
  const source = new EventSource(followed.dataset.events);
  const show = (event) => {
    const seen = JSON.parse(event.data);
    const step = seen.progress || (seen.state === "queued" ? "waiting for a worker" : seen.state);
    followed.textContent = seen.rows && seen.rows.length ? step + ": " + seen.rows.length + " more rows" : step;
  };
  const done = () => { source.close(); location.reload(); };
  for (const state of ["queued", "leased", "running", "succeeded", "problem"]) source.addEventListener(state, show);
  // A run that failed or was cancelled is one of several; the whole is over when the state is a validation's or advice's.
  for (const state of ["ready", "done"]) source.addEventListener(state, done);
  for (const state of ["failed", "cancelled"]) {
    source.addEventListener(state, (event) => { if (JSON.parse(event.data).run) show(event); else done(); });
  }
}

const scripted = document.getElementById("scripted");
if (scripted) scripted.value = "yes";

// Out of the address, so that it is not shared with it; the history entry keeps it when the page is loaded again.
const key = new URLSearchParams(location.hash.slice(1)).get("key") || (history.state && history.state.key);
const field = document.getElementById("key");
if (key) history.replaceState({ key }, "", location.pathname + location.search);
if (key && field) field.value = key;
const keep = document.getElementById("keep");
if (key && keep) { keep.querySelector("code").textContent = key; keep.hidden = false; }

const gpus = document.getElementById("gpus");
if (gpus && gpus.list) {
  const names = Array.from(gpus.list.options, (option) => option.value);
  gpus.addEventListener("input", () => {
    const before = gpus.value.match(/^(?:.*\+\s*)?(?:\d+\s*x\s*)?/i)[0];
    gpus.list.replaceChildren(...names.map((name) => {
      const option = document.createElement("option");
      option.value = before + name;
      return option;
    }));
  });
}

const errors = document.getElementById("errors");
if (errors) errors.focus();
