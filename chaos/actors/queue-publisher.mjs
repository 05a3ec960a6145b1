/**
 * Publishes at a steady rate for many tenants, each with events of its own in order, and prints what became of each:
 * "acked <µs> <type> <tenant> <n> <key> <id>" or "refused <µs> <type> <tenant> <n> <key> <code>". Nobody harms it. Hears on stdin:
 *
 *   hold   no more for now; prints "held" when everything has its answer
 *   go     on again
 *
 * SIGTERM, or the end of stdin, ends it in order.
 *
 * Arguments: URL of Redis, namespace, events a second, tenants, types separated by commas, one in how many is poison; how many objects a
 * tenant has, 1 if nothing is said; for how many ms poison is poison, for ever if nothing is said.
 */
import { createInterface } from 'node:readline'
import { busbar } from '../../dist/index.js'
import { nowUs } from '../harness/clock.mjs'

const [redis, namespace, rate, tenants, types, poisonEvery, objects = 1, poisonMs] = process.argv.slice(2)
const tickMs = 10
const perTick = (Number(rate) * tickMs) / 1000
// Longer than Redis is ever away in a run, so that no outcome stays unknown.
const bus = busbar({ redis, namespace, publish: { timeout: '5m' } })
const kinds = types.split(',')
const counts = new Array(Number(tenants)).fill(0)
const waiting = new Set()
const say = (line) => void process.stdout.write(`${line}\n`)

let all = 0
let owed = 0
let isHeld = false
const timer = setInterval(() => {
  if (isHeld) return
  for (owed += perTick; owed >= 1; owed -= 1) publishNext()
}, tickMs)

/** A few tenants have most of it: the others are quiet ones. */
function nextTenant() {
  return Math.floor(Math.random() ** 3 * counts.length)
}

function publishNext() {
  const tenant = nextTenant()
  counts[tenant] += 1
  all += 1
  const n = counts[tenant]
  const type = kinds[all % kinds.length]
  const options = { tenant: `t${tenant}`, key: `k${Math.floor(Math.random() * objects)}` }
  const poison = all % Number(poisonEvery) === 0 && (poisonMs ? nowUs() + poisonMs * 1000 : true)
  const published = bus.publish(type, { n, poison }, options).then(
    ({ id }) => say(`acked ${nowUs()} ${type} ${options.tenant} ${n} ${options.key} ${id}`),
    (error) => say(`refused ${nowUs()} ${type} ${options.tenant} ${n} ${options.key} ${error.code}`),
  )
  waiting.add(published)
  published.finally(() => waiting.delete(published))
}

async function hold() {
  isHeld = true
  await Promise.all(waiting)
  say(`held ${nowUs()}`)
}

let ending = false
async function end() {
  if (ending) return
  ending = true
  clearInterval(timer)
  await Promise.all(waiting)
  await bus.close()
  process.exit(0)
}
process.once('SIGTERM', end)
createInterface({ input: process.stdin })
  .on('line', (line) => {
    if (line === 'hold') void hold()
    if (line === 'go') isHeld = false
  })
  .on('close', end)
