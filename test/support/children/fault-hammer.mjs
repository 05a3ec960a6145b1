/**
 * Publishes far more than may wait, to a Redis that is away, and prints how its memory changed:
 * `hammered { codes, grownBytes }`. Arguments: URL of Redis, how many to publish.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { busbar } from '../../../dist/index.js'

const [redis, wanted] = process.argv.slice(2)
setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc')
const bus = busbar({ redis, publish: { timeout: '10ms', maxWaiting: 1_000 } })
const codes = {}
const data = { text: 'x'.repeat(200) }

/** Some are refused, and those that wait expire and make room for others. */
async function hammer(count) {
  for (let published = 0; published < count; published += 1_000) {
    for (let n = 0; n < 1_000; n += 1)
      bus.publish('order.paid', data, { key: `order:${n}` }).catch(({ code }) => {
        codes[code] = (codes[code] ?? 0) + 1
      })
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

function heapBytes() {
  collectGarbage()
  return process.memoryUsage().heapUsed
}

await hammer(20_000)
const before = heapBytes()
await hammer(Number(wanted))
const grownBytes = heapBytes() - before
await bus.close({ timeout: '1s' })
process.stdout.write(`hammered ${JSON.stringify({ codes, grownBytes })}\n`)
