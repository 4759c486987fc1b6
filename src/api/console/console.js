// Keeps a page fresh: fetches it again and exchanges the parts that the server now renders in another way. Without this script the
// page works as well; one reloads it by hand. What is being typed stays: a part with unchanged HTML is not touched.
"use strict";

const PAUSE = 3000; // milliseconds
const rendered = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id, part.outerHTML]));

function exchange(page) {
  for (const [id, before] of rendered) {
    const now = page.getElementById(id);
    const shown = document.getElementById(id);
    if (!now || !shown || now.outerHTML === before || shown.contains(document.activeElement)) continue;
    rendered.set(id, now.outerHTML);
    shown.replaceWith(document.importNode(now, true));
  }
}

async function refresh() {
  try {
    if (document.visibilityState === "visible") {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "manual" });
      if (answer.type === "opaqueredirect") location.reload(); // the session is over
      if (answer.ok) exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
  } catch {
    // The gateway is away for a moment; the next round finds it again.
  }
  setTimeout(refresh, PAUSE);
}

if (rendered.size) setTimeout(refresh, PAUSE);
