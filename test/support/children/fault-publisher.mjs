/**
 * A process that publishes what it is told: a line of JSON `[[type, data, options], …]` makes it publish all of them at
 * once and print one line with the answers, `answers [{ id, seq, prev, duplicate } | { code }, …]`.
 *
 * Arguments: URL of Redis, namespace, timeout of a publish. Failpoints: before-publish, after-answer.
 */
import { createInterface } from 'node:readline'
import { busbar } from '../../../dist/index.js'
import { failpoint } from './failpoints.mjs'

const [redis, namespace, timeout] = process.argv.slice(2)
const bus = busbar({ redis, namespace, publish: { timeout } })

async function publish([type, data, options]) {
  try {
    return await bus.publish(type, data, options)
  } catch (error) {
    return { code: error.code ?? String(error) }
  }
}

// Connected and with the script loaded before anything is counted or stopped.
await bus.topics()
process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  failpoint('before-publish')
  const answers = await Promise.all(JSON.parse(line).map(publish))
  failpoint('after-answer')
  process.stdout.write(`answers ${JSON.stringify(answers)}\n`)
}
await bus.close()
