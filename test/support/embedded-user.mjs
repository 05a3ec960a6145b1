/**
 * A process that uses the embedded Redis of a folder: says "opening", then "open" with what it got, and holds it until it
 * is told "release". It never exits by itself: it ends when nothing keeps it alive.
 */
import { createInterface } from 'node:readline'
import { openEmbeddedRedis } from '../../dist/redis/embedded.js'
import { createTelemetry } from '../../dist/runtime/telemetry.js'

const telemetry = createTelemetry(Date.now)
console.log('opening')
const embedded = await openEmbeddedRedis({ dataDir: process.argv[2], telemetry })
console.log(`open ${JSON.stringify(embedded)}`)

const orders = createInterface({ input: process.stdin })
orders.once('line', async () => {
  await embedded.release()
  console.log(`released ${[...telemetry.counts().keys()]}`)
  process.stdin.destroy()
})
