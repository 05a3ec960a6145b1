/**
 * npm run bench -- <scenario> [--quick] [--json] [--only words]
 *
 * Installs what is missing, starts its own servers, runs one scenario from scenarios/, prints the rows and ends with
 * 0 only if the run counts: every acknowledged event found once and in order, every target reached, every peer above
 * its floor. Results go to standard output, everything else to standard error.
 */
import { readdirSync } from 'node:fs'
import { loadavg } from 'node:os'
import { parseArgs } from 'node:util'
import { endChildren } from './harness/child.mjs'
import { installNats, installPeers } from './harness/install.mjs'
import { printFloors, printJson, printTable } from './harness/report.mjs'
import { startNats, startRedis, stopServers } from './harness/servers.mjs'

const scenarioNames = readdirSync(new URL('./scenarios/', import.meta.url)).map((file) => file.replace(/\.mjs$/, ''))

const fullPlan = {
  ...{ rounds: 3, warmMs: 1_000, measureMs: 4_000, yardstickRequests: 2_000_000 },
  ...{ memoryEvents: 1_000_000, streamEvents: 300_000, idleEvents: 400, cpuEvents: 4_000 },
  ...{ waitingItems: 200_000, manyLanes: 100_000, otherQueues: 10_000 },
  ...{ busyItems: 100_000, quietEvents: 400, weighedItems: 6_000 },
  ...{ orderedItems: 100_000, blockedKeys: 100_000, struckItems: 120_000, kills: 10 },
  ...{ deliveredEvents: 100_000, manyHooks: 10_000 },
  ...{ finishedOperations: 100_000, manyOperations: 1_000_000 },
}
const quickPlan = {
  ...{ rounds: 1, warmMs: 600, measureMs: 1_500, yardstickRequests: 500_000 },
  ...{ memoryEvents: 200_000, streamEvents: 60_000, idleEvents: 200, cpuEvents: 1_000 },
  ...{ waitingItems: 20_000, manyLanes: 10_000, otherQueues: 1_000 },
  ...{ busyItems: 10_000, quietEvents: 100, weighedItems: 1_200 },
  ...{ orderedItems: 20_000, blockedKeys: 10_000, struckItems: 40_000, kills: 3 },
  ...{ deliveredEvents: 20_000, manyHooks: 2_000 },
  ...{ finishedOperations: 20_000, manyOperations: 50_000 },
}

process.on('exit', cleanUp)
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130))

const settings = readArguments()
process.exitCode = (await main(settings)) ? 0 : 1
cleanUp()

function readArguments() {
  const usage = `Usage: npm run bench -- ${scenarioNames.join('|')} [--quick] [--json] [--only word,word]`
  try {
    const { values, positionals } = parseArgs({
      options: { quick: { type: 'boolean' }, json: { type: 'boolean' }, only: { type: 'string' } },
      allowPositionals: true,
    })
    if (positionals.length === 1 && scenarioNames.includes(positionals[0]))
      return { ...values, scenario: positionals[0] }
    console.error(usage)
  } catch (error) {
    console.error(`${error.message}\n${usage}`)
  }
  process.exit(2)
}

async function main({ scenario, quick, json, only }) {
  installPeers()
  const natsProblem = installNats()
  warnIfBusy()

  // Imported only now: both stand on packages that installPeers may just have brought.
  const { Redis } = await import('ioredis')
  const { run: runScenario } = await import(`./scenarios/${scenario}.mjs`)

  const redis = await startRedis()
  const control = new Redis({ host: redis.host, port: redis.port })
  const run = {
    redis,
    control,
    nats: await startNats(),
    natsProblem,
    plan: quick ? quickPlan : fullPlan,
    only: only?.toLowerCase().split(','),
    progress: reportProgress,
    problems: [],
    floors: [],
  }
  const { rows, yardstick } = await runScenario(run)
  control.disconnect()
  clearProgress()

  if (json) printJson(rows)
  else {
    printTable(rows)
    printFloors(yardstick, run.floors)
  }
  return judge(run, rows)
}

/** Whether the run counts; says why not. */
function judge({ problems, only }, rows) {
  for (const { measure, busbar, peer, peerValue, ok } of rows) {
    const isMeasured = busbar !== undefined && peerValue !== undefined
    if (!ok) problems.push(`${measure} against ${peer}: ${isMeasured ? 'target not reached' : 'not measured'}`)
  }
  if (only) problems.push('--only measures a part; that is no result')
  if (problems.length === 0) return true
  console.error('\nThis run is void:')
  for (const problem of problems) console.error(`  - ${problem}`)
  return false
}

function warnIfBusy() {
  const [lastMinute] = loadavg()
  if (lastMinute > 0.7)
    console.error(`warning: the machine is busy (load ${lastMinute.toFixed(1)}); ratios will be noisy`)
}

/** With a value: a finished step, which stays. Without: what is going on, which on a terminal the next line replaces. */
function reportProgress(step, value) {
  clearProgress()
  if (value !== undefined) console.error(`  ${step.padEnd(60)} ${value.padStart(14)}`)
  else if (process.stderr.isTTY) process.stderr.write(`  ${step} …`)
}

function clearProgress() {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
}

function cleanUp() {
  endChildren()
  stopServers()
}
