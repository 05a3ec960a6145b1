/**
 * A running bus with a worker of the queue `mail`. Prints "ready", "begin <id> <attempt>" and "end <id>" for each item, and the
 * names of telemetry events of queues.
 *
 * Arguments: URL of Redis, namespace, worker's name or '-', options of the queue and of the group as JSON. HANDLE says what its
 * handler does: `ack`, `hang`, `kill` (the process kills itself), `slow:<ms>`, `block:<ms>` (the event loop stands still),
 * `until-signal`, `effect:<file>` (appends "<tenant>/<key> <n>"; FAIL is the share of those that throw before). Failpoint: begin.
 */
import { appendFileSync } from 'node:fs'
import { busbar } from '../../../dist/index.js'
import { failpoint } from './failpoints.mjs'

const [redis, namespace, worker, options, group] = process.argv.slice(2)
const [what, ms = '0'] = (process.env.HANDLE ?? 'ack').split(':')
const failing = Number(process.env.FAIL ?? 0)
const say = (line) => void process.stdout.write(`${line}\n`)
const pause = (time) => new Promise((resolve) => setTimeout(resolve, time))

function block(time) {
  const until = Date.now() + time
  while (Date.now() < until);
}

const handlers = {
  ack: () => undefined,
  hang: () => new Promise(() => undefined),
  kill: () => process.kill(process.pid, 'SIGKILL'),
  slow: () => pause(Number(ms)),
  block: () => block(Number(ms)),
  effect: async (_, { tenant, key, data }) => {
    if (Math.random() < failing) throw new Error('by chance')
    await pause(Math.random() * 3)
    appendFileSync(ms, `${tenant}/${key} ${data.n}\n`)
  },
  'until-signal': (signal) => new Promise((resolve) => signal.addEventListener('abort', resolve)),
}

const named = worker === '-' ? {} : { worker }
const onTelemetry = ({ name }) => name.startsWith('queue.') && say(name)
const bus = busbar({ redis, namespace, ...named, group: JSON.parse(group), onTelemetry })
bus.queue('mail', JSON.parse(options)).work(
  async (event, { attempt, signal }) => {
    const { id } = event
    say(`begin ${id} ${attempt}`)
    failpoint('begin')
    await handlers[what](signal, event)
    say(`end ${id}`)
  },
  { concurrency: Number(process.env.CONCURRENCY ?? 10) },
)
await bus.run()
say('ready')
