/**
 * Does by hand what people do to webhooks, one thing after the other: looks at all of them, pauses and resumes the one that is its own, gives it new
 * secrets, puts its dead letters back in line or gives them up, and makes and removes webhooks that are there for a moment. Prints "surprise
 * <µs> <code>" for what should not fail, "discarded <µs> <ids of events>" before letters are given up, "finding <µs> …" of fsck, and "rested <µs>".
 * Hears on stdin:
 *
 *   check, trust   also run fsck, or not
 *   rest           stop; its webhook is resumed
 *   go             on again
 *
 * Arguments: URL of Redis, namespace, its webhook, URL of a receiver.
 */
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'
import { nowUs } from '../harness/clock.mjs'

const [redis, namespace, hook, url] = process.argv.slice(2)
const bus = busbar({ redis, namespace, webhooks: { allow: ['127.0.0.0/8'], allowHttp: true, dispatch: false } })
const { webhooks } = bus
const say = (kind, ...fields) => void process.stdout.write(`${kind} ${nowUs()} ${fields.join(' ')}\n`)
let [rests, checks, brief] = [false, false, 0]

const acts = [
  () => webhooks.list(),
  async () => {
    await webhooks.pause(hook)
    await sleep(100)
    await webhooks.resume(hook)
  },
  () => webhooks.rotate(hook),
  async () => {
    const letters = await webhooks.dead.list(hook, { limit: 5 })
    if (letters.length > 0) await webhooks.dead.redrive(hook, { ids: letters.map(({ id }) => id) })
  },
  async () => {
    const letters = await webhooks.dead.list(hook, { limit: 1 })
    for (const { id, event } of letters) {
      say('discarded', event.data.events.map((one) => one.id).join(','))
      await webhooks.dead.discard(hook, { ids: [id] })
    }
  },
  async () => {
    brief += 1
    const name = `brief-${brief}`
    await webhooks.put(name, { url: `${url}/${name}`, match: 'order.*', batch: { maxEvents: 3 } })
    await webhooks.batches(name)
    await webhooks.remove(name)
  },
  async () => {
    if (!checks) return
    for await (const { check, where, problem } of bus.fsck()) say('finding', check, where, problem)
  },
]

async function run() {
  for (let n = 0; ; n += 1) {
    if (rests) {
      await webhooks.resume(hook)
      say('rested')
      while (rests) await sleep(20)
    }
    await acts[n % acts.length]().catch((error) => say('surprise', error.code ?? error.message))
    await sleep(20)
  }
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    if (line === 'rest') rests = true
    if (line === 'go') rests = false
    if (line === 'check' || line === 'trust') checks = line === 'check'
  })
  .on('close', () => process.exit(0))

await run()
