/**
 * Processing: how many stored events a second one worker gets through, in order and committed; how long an event takes
 * from publish to the handler when nothing else is going on; how many partitions move when a worker joins; and what a
 * second worker brings. 120-byte events on 50,000 keys, 16 partitions.
 */
import { contest } from '../harness/contest.mjs'
import { measureCrew, measureMoves } from '../harness/crew.mjs'
import { floors } from '../harness/floors.mjs'
import { row } from '../harness/report.mjs'

const scenario = 'stream'

// The least that an even division allows: of 16 to 8 and 8, of 8 and 8 to 6, 5 and 5.
const leastMoves = [8, 5]

export async function run(run) {
  const { yardstick, value } = await contest(run, contenders(run))
  const [movedToSecond, movedToThird] = (await countMoves(run)) ?? []

  const processed = { scenario, measure: 'process, one worker', unit: '/s', busbar: value('Busbar process') }
  const moves = { scenario, unit: 'of 16', peer: 'the least for an even division', lessIsBetter: true, target: 1 }
  const rows = [
    row({ ...processed, peer: 'ioredis XREADGROUP COUNT 100, XACK', peerValue: value('XREADGROUP'), target: 1.7 }),
    row({ ...processed, peer: 'NATS consume, each acked', peerValue: value('NATS consume'), target: 1.5 }),
    row({ ...processed, peer: 'NATS consume, AckAll every 100', peerValue: value('NATS consume, ack all') }),
    row({ ...processed, peer: 'NATS consume, sync callback, each acked', peerValue: value('NATS consume, callback') }),
    row({
      scenario,
      measure: 'publish to handler, idle, p50',
      unit: 'ms',
      busbar: value('Busbar idle'),
      peer: 'ioredis XADD to blocked XREADGROUP',
      peerValue: value('XREADGROUP idle'),
      lessIsBetter: true,
      target: 1 / 2.5,
    }),
    row({ ...moves, measure: 'moved, workers 1 → 2', busbar: movedToSecond, peerValue: leastMoves[0] }),
    row({ ...moves, measure: 'moved, workers 2 → 3', busbar: movedToThird, peerValue: leastMoves[1] }),
    row({
      scenario,
      measure: 'two workers, 1 ms of CPU per event',
      unit: '/s',
      busbar: value('Busbar, two workers'),
      peer: 'one worker',
      peerValue: value('Busbar, one worker'),
      target: 1.6,
    }),
  ]
  return { rows, yardstick }
}

/**
 * In the order of odd rounds; what is compared stands side by side.
 *
 * @returns {import('../harness/contest.mjs').Contender[]}
 */
function contenders({ natsProblem, plan }) {
  const count = plan.streamEvents
  const crew = (workers) => (run) => measureCrew(run, { workers, count: plan.cpuEvents, cpuMs: 1 })
  const filledBy = (workload, more) => ({ workload, width: 1_000, count, ...more })
  const nats = {
    workload: 'nats-process.mjs',
    fill: filledBy('nats-publish.mjs', { options: { keepStream: true } }),
    floor: floors.natsConsume,
    unavailable: natsProblem,
  }
  return [
    { ...nats, name: 'NATS consume, callback', options: { count, way: 'callback' } },
    { ...nats, name: 'NATS consume, ack all', options: { count, way: 'all' } },
    { ...nats, name: 'NATS consume', options: { count, way: 'each' } },
    {
      name: 'Busbar process',
      workload: 'busbar-process.mjs',
      fill: filledBy('busbar-publish.mjs', { verify: true }),
      options: { count },
    },
    {
      name: 'XREADGROUP',
      workload: 'xreadgroup-process.mjs',
      fill: filledBy('ioredis-xadd-streams.mjs'),
      options: { count },
    },
    { name: 'XREADGROUP idle', workload: 'xreadgroup-idle.mjs', latency: true, options: { events: plan.idleEvents } },
    { name: 'Busbar idle', workload: 'busbar-idle.mjs', latency: true, options: { events: plan.idleEvents } },
    { name: 'Busbar, one worker', conduct: crew(1) },
    { name: 'Busbar, two workers', conduct: crew(2) },
  ]
}

/** Once, not in rounds: it is arithmetic, not speed. */
async function countMoves(run) {
  const { progress, problems, only } = run
  if (only && !only.includes('moves')) return undefined
  progress('Busbar moves')
  try {
    const moves = await measureMoves(run)
    progress('Busbar moves', moves.join(', '))
    return moves
  } catch (error) {
    problems.push(`Busbar moves failed: ${error.message}`)
    return undefined
  }
}
