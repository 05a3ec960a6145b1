/**
 * A running bus that posts the webhooks of its namespace. Prints "ready" and "<outcome> <batch>" for each attempt.
 *
 * Arguments: URL of Redis, namespace, options of webhooks and of the group as JSON. CLOCK_OFF_MS: how far its clock is off.
 */
import { busbar } from '../../../dist/index.js'

const [redis, namespace, webhooks, group] = process.argv.slice(2)
const say = (line) => void process.stdout.write(`${line}\n`)

const offMs = Number(process.env.CLOCK_OFF_MS ?? 0)
const now = Date.now
Date.now = () => now() + offMs

const bus = busbar({
  ...{ redis, namespace, group: JSON.parse(group) },
  webhooks: { dispatch: true, ...JSON.parse(webhooks) },
  onTelemetry: ({ fields }) => 'outcome' in fields && say(`${fields.outcome} ${fields.batch}`),
})
await bus.run()
say('ready')
