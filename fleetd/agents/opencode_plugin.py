"""The plugin that OpenCode's interface runs for a member: it writes down what the program's events say of its turns.

It is JavaScript, runs inside of the program, and stands in the member's directory with its record, which holds the
events as they are but for what is long or of no use. Programs that the member starts inherit its environment, and with
it the plugin: only the first process writes.
"""

from __future__ import annotations

import json
from typing import Final

#: In the member's directory.
PLUGIN: Final = "fleetd-plugin.js"
RECORD: Final = "events.jsonl"
#: A record larger than this starts again with the next prompt, in bytes.
RECORD_BYTES: Final = 8 * 1024 * 1024
#: Characters of one text that are kept, and of an error's message and of the body of its answer.
TEXT_CHARS: Final = 300_000
ERROR_CHARS: Final = 4_000
#: What is written down.
EVENTS: Final = (
    "session.created",
    "session.status",
    "session.idle",
    "session.error",
    "message.updated",
    "message.part.updated",
    "permission.asked",
    "permission.replied",
    "question.asked",
    "question.replied",
    "question.rejected",
)

_SOURCE: Final = """\
import { appendFileSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs"

const set = __SET__
const overflows = new Map()

const owns = () => {
  try {
    writeFileSync(set.owner, String(process.pid), { flag: "wx", mode: 0o600 })
    return true
  } catch {
    try { return readFileSync(set.owner, "utf8") === String(process.pid) } catch { return false }
  }
}
const put = (event) => appendFileSync(set.record, JSON.stringify(event) + "\\n", { mode: 0o600 })
const restart = () => {
  try { if (statSync(set.record).size > set.bytes) truncateSync(set.record) } catch {}
}
const cut = (text, chars) => typeof text === "string" ? text.slice(0, chars) : text
const failure = (error) => error && {
  name: error.name,
  data: {
    message: cut(error.data?.message, set.error),
    statusCode: error.data?.statusCode,
    responseHeaders: Object.fromEntries(Object.entries(error.data?.responseHeaders ?? {})
      .filter(([name]) => /retry-after|ratelimit/i.test(name)).slice(0, 20)),
    responseBody: cut(error.data?.responseBody, set.error),
  },
}

const kept = (type, p) => {
  switch (type) {
    case "session.created":
      return { info: { id: p.info.id, parentID: p.info.parentID } }
    case "message.updated": {
      const { id, sessionID, role, parentID, finish, summary, error } = p.info
      if (role === "user") restart()
      return { info: { id, sessionID, role, parentID, finish, summary: summary === true, error: failure(error) } }
    }
    case "message.part.updated": {
      const { id, sessionID, messageID, type, text, synthetic, ignored, time } = p.part
      if (!["text", "step-start"].includes(type) || (time && !time.end)) return
      return { part: { id, sessionID, messageID, type, text: cut(text, set.text), synthetic, ignored, time } }
    }
    case "session.status": {
      const { type, attempt, message, next } = p.status
      return { sessionID: p.sessionID, status: { type, attempt, message: cut(message, set.error), next } }
    }
    case "session.error":
      return { sessionID: p.sessionID, error: failure(p.error) }
    default:
      return { sessionID: p.sessionID }
  }
}

const stop = async (api, { type, properties: p }) => {
  if (type === "session.idle") overflows.delete(p.sessionID)
  if (type !== "session.error" || p.error?.name !== "ContextOverflowError") return
  overflows.set(p.sessionID, (overflows.get(p.sessionID) ?? 0) + 1)
  if (overflows.get(p.sessionID) === set.overflows) await api.client.session.abort({ sessionID: p.sessionID })
}

export default {
  id: "fleetd",
  tui: async (api) => {
    if (!owns()) return
    put({ type: "fleetd.loaded" })
    for (const type of set.events) {
      api.event.on(type, (event) => {
        const properties = kept(type, event.properties)
        if (properties) put({ type, properties })
        if (set.overflows) stop(api, event).catch(() => {})
      })
    }
  },
}
"""


def source(directory: str, *, overflows: int) -> str:
    """The plugin's text.

    Args:
        directory: where its record goes.
        overflows: after so many conversations that were too long it stops a turn; 0 for never.
    """
    settings = {
        "record": f"{directory}/{RECORD}",
        "owner": f"{directory}/owner",
        "bytes": RECORD_BYTES,
        "text": TEXT_CHARS,
        "error": ERROR_CHARS,
        "overflows": overflows,
        "events": EVENTS,
    }
    return _SOURCE.replace("__SET__", json.dumps(settings))
