/**
 * Order per object and limits: what order costs from publish to ack, and against a peer that has groups; whether it holds
 * while handlers fail and processes are killed; what limits cost that nobody reaches; and whether a claim costs more when
 * nearly every key is blocked. 120-byte events, 100 tenants × 100 keys.
 */
import { contest, measure } from '../harness/contest.mjs'
import { floors } from '../harness/floors.mjs'
import { retryMs } from '../harness/luck.mjs'
import { limited, ordered, struck } from '../harness/queue.mjs'
import { row } from '../harness/report.mjs'
import { measureStruck } from '../harness/struck.mjs'

const scenario = 'order'
const keys = 10_000
// Few keys: many events of each are on their way at once.
const struckKeys = 1_000

export async function run(run) {
  const { yardstick, value } = await contest(run, contenders(run))
  const endToEnd = { scenario, unit: '/s', peer: 'Busbar, neither', peerValue: value('Busbar end to end') }
  const claimed = { scenario, unit: 'µs', lessIsBetter: true, peer: 'none blocked', target: 1 / 2 }
  const violations = await disorder(run, 'Busbar order', { workload: 'busbar-struck.mjs', fill: sentTo(struck) })
  const ofBullmq = await disorder(run, 'BullMQ order', { workload: 'bullmq-struck.mjs', fill: added })
  const rows = [
    row({ ...endToEnd, measure: 'ordered, end to end', busbar: value('Busbar ordered, end to end'), target: 0.6 }),
    row({
      scenario,
      measure: 'ordered, claim and ack what waits',
      unit: '/s',
      busbar: value('Busbar ordered, process'),
      peer: `groupmq, ${keys.toLocaleString('en')} groups`,
      peerValue: value('groupmq process'),
      target: 2,
    }),
    row({
      scenario,
      measure: 'effects out of order',
      unit: 'effects',
      busbar: violations?.outOfOrder,
      peer: 'BullMQ Worker',
      peerValue: ofBullmq?.outOfOrder,
      most: 0,
    }),
    row({ ...endToEnd, measure: 'every limit, end to end', busbar: value('Busbar limited, end to end'), target: 0.85 }),
    row({
      ...claimed,
      measure: 'claim, all keys but one blocked, in Redis',
      busbar: value('Busbar claim, blocked'),
      peerValue: value('Busbar claim, none blocked'),
    }),
    row({
      ...claimed,
      measure: 'claim, all keys but one blocked, in all',
      busbar: value('Busbar claim, blocked', 'wallMicros'),
      peerValue: value('Busbar claim, none blocked', 'wallMicros'),
    }),
  ]
  return { rows, yardstick }
}

/**
 * What is compared stands side by side; the queue with neither order nor limits runs twice in a round, around the others.
 *
 * @returns {import('../harness/contest.mjs').Contender[]}
 */
function contenders({ plan }) {
  const { warmMs, measureMs, orderedItems: count, blockedKeys } = plan
  const workload = 'busbar-queue-end-to-end.mjs'
  const times = { warmMs, measureMs, keys }
  const neither = { name: 'Busbar end to end', workload, options: times }
  const claim = { workload: 'busbar-blocked-keys.mjs', figure: 'redisMicros' }
  return [
    neither,
    { name: 'Busbar ordered, end to end', workload, options: { ...times, definition: ordered } },
    { name: 'Busbar limited, end to end', workload, options: { ...times, definition: limited } },
    neither,
    {
      name: 'groupmq process',
      workload: 'groupmq-process.mjs',
      fill: { workload: 'groupmq-add.mjs', width: 1_000, count, options: { keys } },
      floor: floors.groupmqProcess,
      options: { count, keys },
    },
    {
      name: 'Busbar ordered, process',
      workload: 'busbar-queue-process.mjs',
      fill: sentTo(ordered)({ count, keys }),
      options: { count, keys, definition: ordered },
    },
    { ...claim, name: 'Busbar claim, none blocked', options: { keys: blockedKeys, isBlocked: false } },
    { ...claim, name: 'Busbar claim, blocked', options: { keys: blockedKeys, isBlocked: true } },
  ]
}

const sentTo =
  (definition) =>
  ({ count, keys }) => ({ workload: 'busbar-send.mjs', width: 1_000, count, options: { definition, keys } })

const added = ({ count, keys }) => ({
  workload: 'bullmq-add.mjs',
  width: 1_000,
  count,
  options: { keys, jobOptions: { attempts: 1_000, backoff: { type: 'fixed', delay: retryMs } } },
})

/** Once, not in rounds: it is right or wrong. */
async function disorder(run, name, { workload, fill }) {
  const { plan, progress, only } = run
  if (only && !only.some((word) => name.toLowerCase().includes(word))) return undefined
  const load = { count: plan.struckItems, keys: struckKeys }
  const conduct = (its) => measureStruck(its, { workload, ...load, kills: plan.kills })
  const measured = await measure(run, { name, fill: fill(load), conduct })
  if (!measured) return undefined
  const { outOfOrder, again } = measured.figures
  progress(name, `${outOfOrder} out of order, ${again} again`)
  return measured.figures
}
