// Keeps an open page up to date: hears of changes over one stream, and asks htmx to fetch what they touch.
// Without the stream it asks every now and then. Also: copying, times that go on, forms that are sent once.
//
// Nothing is missed between a page and its stream: a page carries the position in the event log that was read
// before it was rendered, the stream begins there, and whenever one opens the page is fetched once more, for what
// changes without an event. A laptop that slept may leave a dead stream or request behind without any error:
// both are given up when the page comes back, when the clock has jumped, and when they are silent for too long.
(function () {
  "use strict";

  const TOGETHER_MS = 400, AFTERWARDS_MS = 2500, BUSY_MS = 4000, TICK_MS = 1000, WAKE_MS = 50;
  // Between two tries to connect: from, and up to. The latter is also how often a page asks without a stream.
  const RETRY_MS = 1000, FALLBACK_MS = 20000;
  // The server says something every 15 s; no page takes that long; ticks do not come this late while awake.
  const SILENT_MS = 35000, ANSWER_MS = 15000, JUMP_MS = 5000;
  const KEEP_ALIVE = "keep-alive", POSITION = "Gpuherd-Event-Position";
  const page = document.querySelector("[data-refresh]");
  const state = document.getElementById("live-state");
  let stream = null, position = document.body.dataset.position, heardAt = 0, askedAt = 0, tickedAt = Date.now();
  let together = 0, afterwards = 0, waking = 0, retrying = 0, retryMs = RETRY_MS;
  let asking = false, again = false, skipped = false;

  // ---- what changed on the page -------------------------------------------------------------------------

  function refresh() {
    if (!page || document.hidden) return;
    if (asking) { again = true; return; }
    asking = true;
    askedAt = Date.now();
    htmx.trigger(page, "refresh");
  }

  // Many changes come at once: one look is enough for all. A second one, later, is for what follows from them.
  function changed() {
    if (!together) together = setTimeout(function () { together = 0; refresh(); }, TOGETHER_MS);
    clearTimeout(afterwards);
    afterwards = setTimeout(refresh, AFTERWARDS_MS);
  }

  document.addEventListener("htmx:afterRequest", function (event) {
    if (event.detail.elt !== page) return;
    asking = false;
    if (again) { again = false; changed(); }
    if (!event.detail.successful) { retry(); return; }
    position = event.detail.xhr.getResponseHeader(POSITION) || position;
    if (stream && stream.readyState === EventSource.OPEN) retryMs = RETRY_MS;
    listen();
  });

  function gist(element) {
    const copy = element.cloneNode(true);
    copy.querySelectorAll("time, [data-log]").forEach(function (it) { it.textContent = ""; });
    return ("busy" in element.dataset) + copy.innerHTML.replace(/\s+/g, " ");
  }

  // Nothing is torn from under somebody's hands: not a question that is open, not a field that is typed into.
  document.addEventListener("htmx:oobBeforeSwap", function (event) {
    const target = event.detail.target, parcel = event.detail.fragment;
    const fresh = parcel.id === target.id ? parcel : parcel.querySelector("#" + target.id) || target;
    const busy = target.querySelector("details[open]") || target.querySelector("input:focus, select:focus");
    if (busy) skipped = true;
    if (busy || gist(target) === gist(fresh)) event.detail.shouldSwap = false;
  });

  function released() {
    if (skipped) { skipped = false; changed(); }
  }

  document.addEventListener("focusout", released);
  document.addEventListener("toggle", function (event) { if (!event.target.open) released(); }, true);

  // ---- the stream ----------------------------------------------------------------------------------------

  function show(word, kind) {
    if (!state) return;
    state.className = "live " + kind;
    state.querySelector(".live-word").textContent = word;
  }

  if (state && !page) state.hidden = true;

  function heard(event) {
    heardAt = Date.now();
    if (event.lastEventId) position = event.lastEventId;
  }

  function listen() {
    if (stream || !page || document.hidden) return;
    stream = new EventSource("/api/events?keepAlive=event" + (position && "&lastEventId=" + position));
    heardAt = Date.now();
    stream.onopen = function (event) {
      heard(event);
      retryMs = RETRY_MS;
      show("live", "on");
      refresh();
    };
    // Not left to the browser: it would resume where this stream began, however long ago that was.
    stream.onerror = function () { show("polling", "off"); hangUp(); retry(); };
    stream.addEventListener(KEEP_ALIVE, heard);
    document.body.dataset.events.split(" ").concat("message").forEach(function (type) {
      stream.addEventListener(type, function (event) { heard(event); changed(); });
    });
  }

  function hangUp() {
    if (stream) stream.close();
    stream = null;
    clearTimeout(retrying); retrying = 0;
  }

  // Fetches the page; its answer brings the position at which the stream goes on.
  function connect() {
    retrying = 0;
    refresh();
  }

  function retry() {
    if (retrying || document.hidden) return;
    retrying = setTimeout(connect, retryMs * (0.75 + Math.random() / 2));
    retryMs = Math.min(2 * retryMs, FALLBACK_MS);
  }

  // Whatever was open before may be dead without saying so: begin again.
  function wake() {
    if (waking || !page) return;
    waking = setTimeout(function () {
      waking = 0;
      if (document.hidden) return;
      if (asking) htmx.trigger(page, "htmx:abort");
      hangUp();
      connect();
    }, WAKE_MS);
  }

  // A browser opens few connections to one server: pages that nobody looks at give theirs back.
  document.addEventListener("visibilitychange", function () { if (document.hidden) { hangUp(); } else { wake(); } });
  window.addEventListener("pagehide", hangUp);
  window.addEventListener("pageshow", function (event) { if (event.persisted) wake(); });
  window.addEventListener("online", wake);
  document.addEventListener("resume", wake);

  setInterval(function () {
    const now = Date.now(), jumped = Math.abs(now - tickedAt) > JUMP_MS;
    tickedAt = now;
    if (document.hidden) return;
    const isSilent = stream && now - heardAt > SILENT_MS, hangs = asking && now - askedAt > ANSWER_MS;
    if (isSilent) show("polling", "off");
    if (jumped || isSilent || hangs) wake();
  }, TICK_MS);

  // Jobs and deliveries go on without an event: look again for as long as one of them is on its way.
  setInterval(function () { if (document.querySelector("[data-busy]")) refresh(); }, BUSY_MS);
  if (document.querySelector("[data-settle]")) [700, 2000, 5000].forEach(function (ms) { setTimeout(refresh, ms); });

  // ---- times ---------------------------------------------------------------------------------------------

  function two(number) { return (number < 10 ? "0" : "") + number; }

  function rough(s) {
    if (s < 60) return Math.round(s) + " s";
    if (s < 3600) return Math.floor(s / 60) + " min";
    return s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
  }

  // In two units from an hour on: of "1 h" nearly two may be left.
  function ahead(s) {
    if (s < 3600) return rough(s);
    const days = s >= 172800, big = days ? 86400 : 3600, small = days ? 3600 : 60;
    const whole = Math.floor(s / big), rest = Math.floor(s % big / small);
    return whole + (days ? " d" : " h") + (rest ? " " + rest + (days ? " h" : " min") : "");
  }

  function ago(s) {
    if (Math.abs(s) < 5) return "just now";
    return s > 0 ? rough(s) + " ago" : "in " + ahead(-s);
  }

  function lasting(s) {
    const whole = Math.max(0, Math.floor(s));
    if (whole < 60) return whole + " s";
    if (whole < 3600) return Math.floor(whole / 60) + " min " + two(whole % 60) + " s";
    return Math.floor(whole / 3600) + " h " + two(Math.floor(whole % 3600 / 60)) + " min";
  }

  function write(element, text) { if (element.textContent !== text) element.textContent = text; }

  setInterval(function () {
    if (document.hidden) return;
    const now = Date.now();
    document.querySelectorAll("time[data-ago], time[data-since]").forEach(function (time) {
      const seconds = (now - Date.parse(time.dateTime)) / 1000;
      write(time, "ago" in time.dataset ? ago(seconds) : lasting(seconds));
    });
  }, TICK_MS);

  // ---- the log of a boot -------------------------------------------------------------------------------------

  // The last line of the log at the address that the page names, for as long as somebody looks at the page.
  // The server ends such a stream every minute, to look at the session again.
  const LINE_MAX = 300, LOG_RETRY_MS = 3000;
  let reading = null;

  async function follow(mine) {
    const reply = await fetch(mine.url, { signal: mine.stop.signal });
    if (!reply.ok) return;
    const reader = reply.body.getReader(), decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const part = await reader.read();
      if (part.done) return;
      const lines = (rest + decoder.decode(part.value, { stream: true })).split("\n");
      rest = lines.pop().slice(-LINE_MAX);
      const place = document.querySelector("[data-log]"), last = lines.pop();
      // Nothing invisible: a stranger wrote it.
      if (place && last) write(place, last.slice(0, LINE_MAX).replace(/[\p{Cc}\p{Cf}]/gu, "\ufffd"));
    }
  }

  setInterval(function () {
    const place = document.querySelector("[data-log]");
    if (reading && (document.hidden || !place || place.dataset.log !== reading.url)) {
      reading.stop.abort();
      reading = null;
    }
    if (reading || document.hidden || !place) return;
    const mine = reading = { url: place.dataset.log, stop: new AbortController() };
    follow(mine).catch(function () { /* it is tried again */ }).then(function () {
      setTimeout(function () { if (reading === mine) reading = null; }, LOG_RETRY_MS);
    });
  }, TICK_MS);

  // ---- copying and sending -------------------------------------------------------------------------------

  // Answers to a click on a copy button, by the text that it copies: a refresh may replace the button meanwhile.
  const answers = new Map();

  function showAnswers() {
    document.querySelectorAll("[data-copy]").forEach(function (button) {
      const word = answers.get(button.dataset.copy);
      if (word && button.textContent !== word) {
        button.dataset.word = button.dataset.word || button.textContent;
        button.textContent = word;
      } else if (!word && button.dataset.word) { write(button, button.dataset.word); }
    });
  }

  function copied(button, word) {
    const text = button.dataset.copy;
    answers.set(text, word);
    showAnswers();
    setTimeout(function () { answers.delete(text); showAnswers(); }, 1500);
  }

  document.addEventListener("htmx:oobAfterSwap", showAnswers);

  document.addEventListener("click", function (event) {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = button.dataset.copy;
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(function () { copied(button, "Copied"); }, function () { mark(button); });
    } else { mark(button); }
  });

  // Browsers let nobody but the reader copy on plain HTTP: mark the text, so that one key does it.
  function mark(button) {
    const code = button.parentElement.querySelector("code");
    if (code) getSelection().selectAllChildren(code);
    copied(button, "Press Ctrl-C");
  }

  // One question at a time, closed by Escape or by a click beside it.
  document.addEventListener("click", function (event) {
    document.querySelectorAll("details.confirm[open]").forEach(function (open) {
      if (!open.contains(event.target)) open.open = false;
    });
  });
  document.addEventListener("keydown", function (event) {
    if (event.key !== "Escape") return;
    document.querySelectorAll("details.confirm[open]").forEach(function (open) {
      open.open = false;
      open.querySelector("summary").focus();
    });
  });

  // The server takes a form once in any case; this spares people the second click.
  document.addEventListener("submit", function (event) {
    if (event.defaultPrevented || event.target.method !== "post") return;
    const buttons = event.target.querySelectorAll("button");
    setTimeout(function () { buttons.forEach(function (button) { button.disabled = true; }); }, 0);
    // Nothing came of it: let people try again.
    setTimeout(function () { buttons.forEach(function (button) { button.disabled = false; }); }, 15000);
  });
  window.addEventListener("pageshow", function () {
    document.querySelectorAll("form button[disabled]").forEach(function (button) { button.disabled = false; });
  });

  const here = document.querySelector(".top [aria-current]");
  if (here) here.scrollIntoView({ block: "nearest", inline: "center" });

  listen();
})();
