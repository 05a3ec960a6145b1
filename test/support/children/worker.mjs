/**
 * A running bus with a task of the leader and, with CRON in the environment, a schedule, with STREAM a processor of that
 * name. Prints "ready", "led" and "lost" as its leadership changes, "beat" for each run of the task, "fired <tick>" for
 * each tick that it fired and "handled <id>" for each event.
 *
 * Arguments: URL of Redis, namespace, worker's name, timing of the group as JSON. Failpoint: fired, which lies between
 * the publish of a tick and its record.
 */
import { busbar } from '../../../dist/index.js'
import { failpoint } from './failpoints.mjs'

const [redis, namespace, worker, group] = process.argv.slice(2)
const say = (line) => void process.stdout.write(`${line}\n`)

function onTelemetry({ name, fields }) {
  if (name === 'leader.gained') say('led')
  if (name === 'leader.lost') say('lost')
  if (name === 'schedule.fired') {
    failpoint('fired')
    say(`fired ${fields.tick}`)
  }
}

const bus = busbar({ redis, namespace, worker, group: JSON.parse(group), onTelemetry })
bus.task('beat', { every: '100ms' }, () => say('beat'))
if (process.env.CRON) bus.schedule('pulse', process.env.CRON, { type: 'pulse.beaten', data: { by: 'schedule' } })
if (process.env.STREAM)
  bus.processor(process.env.STREAM, { match: '>' }, async (events) => {
    for await (const { id } of events) say(`handled ${id}`)
  })
await bus.run()
say('ready')
