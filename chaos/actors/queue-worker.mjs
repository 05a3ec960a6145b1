/**
 * A running bus: a router, and as a worker also handlers for all queues. Prints every step, each with µs: "ready",
 * "began <queue> <id> <attempt> <tenant> <n>" and "ended <queue> <id> <how>", where how is done, failed or retry. Done is the
 * effect: it is written before the item is settled. Hears on stdin:
 *
 *   block <ms>   be busy now
 *
 * It says "late <ms>" when its own loop was.
 *
 * One in ten handlings fails, poison always does, or until the µs that it says, one in a hundred takes longer than the lease.
 *
 * Arguments: URL of Redis, namespace, worker's name or '-', 'worker' or 'router', timing of the group and queues as JSON.
 */
import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'
import { nowUs } from '../harness/clock.mjs'

const [redis, namespace, name, role, group, queues] = process.argv.slice(2)
const shares = { fail: 0.1, retry: 0.02, slow: 0.01 }
const longestMs = 20
const slowMs = 1_500
const pulseMs = 100

// Not process.stdout, which keeps lines back while its reader is slow: what was said before a SIGKILL must have been said.
const say = (kind, ...fields) => void writeSync(1, `${kind} ${nowUs()} ${fields.join(' ')}\n`)

const told = {
  'queue.stale': ({ queue, id }) => say('stale', queue, id),
  'queue.stuck': ({ queue, problem }) => say('stuck', queue, problem),
  'queue.replaced': ({ queue }) => say('replaced', queue),
  'route.gap': ({ partition }) => say('gap', partition),
  'sink.remade': ({ subscription }) => say('remade', subscription),
}
const named = name === '-' ? {} : { worker: name }
const bus = busbar({
  ...{ redis, namespace, ...named, group: JSON.parse(group) },
  onTelemetry: ({ name: event, fields }) => told[event]?.(fields),
})

async function handle(queue, { id, tenant, data }, attempt) {
  say('began', queue, id, attempt, tenant, data.n)
  await sleep(Math.random() < shares.slow ? slowMs : Math.random() * longestMs)
  const chance = Math.random()
  const isPoison = data.poison === true || data.poison > nowUs()
  if (isPoison || chance < shares.fail) {
    say('ended', queue, id, 'failed')
    throw new Error(isPoison ? 'poison' : 'bad luck')
  }
  if (chance < shares.fail + shares.retry) {
    say('ended', queue, id, 'retry')
    return 'retry'
  }
  say('ended', queue, id, 'done')
  return 'done'
}

if (role === 'worker') {
  const declared = JSON.parse(queues).map(({ name: queue, batch, options }) => ({
    batch,
    door: bus.queue(queue, options),
  }))
  const single = declared.filter(({ batch }) => !batch).map(({ door }) => door)
  bus.work(
    single,
    async (event, ctx) => ((await handle(ctx.queue, event, ctx.attempt)) === 'retry' ? ctx.retry('30ms') : undefined),
    { concurrency: 8, weights: { [single[0].name]: 2 } },
  )
  for (const { door, batch } of declared.filter((one) => one.batch))
    door.work(
      async (items, { queue }) => {
        const settle = async (item) => {
          try {
            if ((await handle(queue, item.event, item.attempt)) === 'retry') item.retry('30ms')
            else item.ack()
          } catch (error) {
            item.retry('50ms', error.message)
          }
        }
        await Promise.all(items.map(settle))
      },
      { concurrency: 2, batch },
    )
}

function block(ms) {
  const end = nowUs() + ms * 1000
  while (nowUs() < end);
}

// A machine that has no time for it: what was late then says nothing about queues.
let pulse = nowUs()
setInterval(() => {
  const lateMs = Math.round((nowUs() - pulse) / 1000) - pulseMs
  pulse = nowUs()
  if (lateMs > pulseMs) say('late', lateMs)
}, pulseMs)

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const [act, ms] = line.split(' ')
    if (act === 'block') block(Number(ms))
  })
  // Nobody is left to listen.
  .on('close', () => process.exit(0))

await bus.run({ role })
say('ready')
