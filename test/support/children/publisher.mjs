/**
 * Publishes n numbered events over a few keys, many in flight, singly and as commits of three, and prints each answer:
 * "stored <n> <id> <prev>". Says "done" when all have their answers; ends when its stdin does.
 */
import { busbar } from '../../../dist/index.js'

const [redis, namespace, name, count, keys] = process.argv.slice(2)
const bus = busbar({ redis, namespace })
const inFlight = 64
let next = 0

function say(n, { id, prev }) {
  process.stdout.write(`stored ${n} ${id} ${prev}\n`)
}

async function publishOn() {
  while (next < Number(count)) {
    const n = next
    const key = `order:${n % Number(keys)}`
    if (n % 7 === 0) {
      next += 3
      const events = [0, 1, 2].map((i) => ['order.changed', { by: name, n: n + i }])
      for (const [i, answer] of (await bus.commit(key, events)).entries()) say(n + i, answer)
    } else {
      next += 1
      say(n, await bus.publish('order.placed', { by: name, n }, { key }))
    }
  }
}

await Promise.all(Array.from({ length: inFlight }, publishOn))
await bus.close()
process.stdout.write('done\n')
