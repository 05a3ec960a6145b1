/**
 * Fairness: how long a quiet tenant's event waits for its handler while another tenant has a pile waiting, and whether
 * weights hold in every window of claims, not on average.
 */
import { contest, measure } from '../harness/contest.mjs'
import { handlerMs } from '../harness/quiet.mjs'
import { row } from '../harness/report.mjs'

const scenario = 'fairness'
const mostMs = 3 * handlerMs + 20

export async function run(run) {
  const { yardstick, value } = await contest(run, contenders(run))
  const waited = {
    scenario,
    measure: 'quiet tenant, publish to handler, p99',
    unit: 'ms',
    busbar: value('Busbar quiet tenant'),
    lessIsBetter: true,
  }
  const rows = [
    row({ ...waited, peer: 'BullMQ, first in, first out', peerValue: value('BullMQ quiet tenant'), target: 100 }),
    row({ ...waited, peer: '3 handler times and 20 ms', peerValue: mostMs, target: 1 }),
    await weighed(run, 1),
    await weighed(run, 6),
  ]
  return { rows, yardstick }
}

/** @returns {import('../harness/contest.mjs').Contender[]} */
function contenders({ plan }) {
  const { busyItems: waiting, quietEvents: quiet } = plan
  const quietTenant = { figure: 'p99Ms', options: { waiting, quiet } }
  return [
    {
      ...quietTenant,
      name: 'BullMQ quiet tenant',
      workload: 'bullmq-quiet.mjs',
      fill: { workload: 'bullmq-add.mjs', width: 1_000, count: waiting },
    },
    {
      ...quietTenant,
      name: 'Busbar quiet tenant',
      workload: 'busbar-queue-quiet.mjs',
      fill: { workload: 'busbar-send.mjs', width: 1_000, count: waiting, options: { tenant: 'busy' } },
    },
  ]
}

/** Once, not in rounds: it is arithmetic, not speed. */
async function weighed(run, max) {
  const { plan, progress, only } = run
  const name = `Busbar weights, claims of ${max}`
  const contender = { name, workload: 'busbar-weights.mjs', options: { max, items: plan.weighedItems } }
  const measured = only && !only.includes('weights') ? undefined : await measure(run, contender)
  const { exact, windows } = measured?.figures ?? {}
  if (measured) progress(name, `${exact} of ${windows}`)
  return row({
    scenario,
    measure: `weights 3:2:1, exact windows, claims of ${max}`,
    unit: 'windows',
    busbar: exact,
    peer: 'all windows',
    peerValue: windows,
    target: 1,
  })
}
