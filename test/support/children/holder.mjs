/**
 * A worker of the queue `mail` that never ends what it holds. Prints ["held", id] for each item.
 *
 * Argument: JSON { redis, namespace, lease }.
 */
import { busbar } from '../../../dist/index.js'

const { lease, ...options } = JSON.parse(process.argv[2])
const bus = busbar(options)
bus.queue('mail', { lease }).work(({ id }) => {
  process.stdout.write(`${JSON.stringify(['held', id])}\n`)
  return new Promise(() => undefined)
})
await bus.run()
