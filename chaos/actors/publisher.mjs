/**
 * Publishes at a steady rate over many keys and prints each acknowledged event: "acked <µs> <key> <n> <partition> <seq>".
 * Nobody harms it. SIGTERM, or the end of stdin, makes it answer what it has begun and end.
 *
 * Arguments: URL of Redis, namespace, events a second, keys.
 */
import { busbar } from '../../dist/index.js'
import { nowUs } from '../harness/clock.mjs'

const [redis, namespace, rate, keys] = process.argv.slice(2)
const tickMs = 10
const perTick = (Number(rate) * tickMs) / 1000
// Longer than Redis is ever away in a run, so that no outcome stays unknown.
const bus = busbar({ redis, namespace, publish: { timeout: '5m' } })
const counts = new Array(Number(keys)).fill(0)
const waiting = new Set()
const say = (line) => void process.stdout.write(`${line}\n`)

let turn = 0
let owed = 0
const timer = setInterval(() => {
  for (owed += perTick; owed >= 1; owed -= 1) publishNext()
}, tickMs)

function publishNext() {
  const key = turn % counts.length
  turn += 1
  counts[key] += 1
  const n = counts[key]
  const published = bus.publish('chaos.step', { n }, { key: `k${key}` }).then(
    ({ id, seq }) => say(`acked ${nowUs()} ${key} ${n} ${id.split('-')[0]} ${seq}`),
    (error) => say(`refused ${nowUs()} ${key} ${n} ${error.code}`),
  )
  waiting.add(published)
  published.finally(() => waiting.delete(published))
}

let ending = false
async function end() {
  if (ending) return
  ending = true
  clearInterval(timer)
  await Promise.all(waiting)
  await bus.close()
  say(`done ${nowUs()}`)
  process.exit(0)
}
process.once('SIGTERM', end)
process.stdin.on('end', end).resume()
