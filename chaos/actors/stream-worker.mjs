/**
 * A worker with one processor that prints every step, and stands still on request where a fault is to strike.
 *
 * Prints, each with µs: "ready", "began" and "ended" <partition> <seq> <epoch> [<key> <n>], "gained", "lost", "stale",
 * "failed", and "at <phase>" when it stands. Hears on stdin:
 *
 *   arm <phase> <ms> <block ms>   stand still the next time it is there, so long, or be busy so long
 *   disarm
 *   block <ms>                    be busy now
 *
 * It stands in Atomics.wait: not even a microtask runs, so that it is struck exactly there and nowhere later. Its phases:
 *
 *   idle      no event in hand
 *   read      an event was handed out, the handler has not begun with it
 *   handler   the handler is in the middle of an event
 *   ended     the handler has asked for the next one, the cursor has not been sent yet
 *
 * The fifth, a commit on its way, is seen by the proxy only.
 *
 * Arguments: URL of Redis, namespace, worker's name, timing of the group as JSON.
 */
import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'
import { nowUs } from '../harness/clock.mjs'

const [redis, namespace, worker, group] = process.argv.slice(2)
const longestStepMs = 3
const idleForMs = 5 // by then the last event's commit is answered

// Not process.stdout, which keeps lines back while its reader is slow: what was said before a SIGKILL must have been said.
const say = (kind, ...fields) => void writeSync(1, `${kind} ${nowUs()} ${fields.join(' ')}\n`)

let armed
let inHand = 0
let idleSince = nowUs()
const never = new Int32Array(new SharedArrayBuffer(4))

function passing(phase) {
  if (armed?.phase !== phase) return
  const { standMs, blockMs } = armed
  armed = undefined
  say('at', phase)
  if (blockMs > 0) block(blockMs)
  else Atomics.wait(never, 0, 0, standMs)
}

function block(ms) {
  const end = nowUs() + ms * 1000
  while (nowUs() < end);
}

async function* inPhases(events) {
  for await (const event of events) {
    inHand += 1
    try {
      passing('read')
      yield event
      passing('ended')
    } finally {
      inHand -= 1
      idleSince = nowUs()
    }
  }
}

const told = {
  'stream.gained': ({ partition, epoch, cursor }) => say('gained', partition, epoch, cursor),
  'stream.lost': ({ partition, epoch, why }) => say('lost', partition, epoch, why),
  'stream.stale': ({ partition, epoch }) => say('stale', partition, epoch),
  'stream.failed': ({ partition, event, problem }) => say('failed', partition, event, problem),
  'stream.stuck': ({ partition, problem }) => say('stuck', partition, problem),
  'stream.gap': ({ partition }) => say('gap', partition),
}

const bus = busbar({
  ...{ redis, namespace, worker, group: JSON.parse(group) },
  onTelemetry: ({ name, fields }) => told[name]?.(fields),
})

bus.processor('chaos', { match: 'chaos.step', use: [inPhases] }, async (events, { partition, epoch }) => {
  for await (const { seq, key, data } of events) {
    say('began', partition, seq, epoch, key.slice(1), data.n)
    if (seq % 2 === 0) await sleep(seq % longestStepMs)
    passing('handler')
    say('ended', partition, seq, epoch)
  }
})

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const [act, first, second, third] = line.split(' ')
    if (act === 'arm') armed = { phase: first, standMs: Number(second), blockMs: Number(third) }
    if (act === 'disarm') armed = undefined
    if (act === 'block') block(Number(first))
  })
  // Nobody is left to listen.
  .on('close', () => process.exit(0))

setInterval(() => {
  if (inHand === 0 && nowUs() - idleSince > idleForMs * 1000) passing('idle')
}, 1)

await bus.run()
say('ready')
