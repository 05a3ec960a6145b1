/**
 * npm run chaos -- <scenario> [--seed N] [--quick] [--json] [--history file]
 *
 * Runs one scenario from scenarios/ with real processes and a Redis of its own, strikes as the seed says, and ends with 0
 * only if the checker found nothing wrong and, in a full run, every fault met every phase. The result goes to standard
 * output, everything else to standard error. The same seed makes the same plan; the machine decides about the rest.
 */
import { readdirSync } from 'node:fs'
import { loadavg } from 'node:os'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { endActors } from './harness/actor.mjs'
import { nowUs } from './harness/clock.mjs'
import { createHistory } from './harness/history.mjs'
import { createRandom } from './harness/random.mjs'
import { printJson, printReport } from './harness/report.mjs'

const scenarioNames = readdirSync(new URL('./scenarios/', import.meta.url)).map((file) => file.replace(/\.mjs$/, ''))

process.on('exit', endActors)
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130))

const settings = readArguments()
process.exit((await main(settings)) ? 0 : 1)

function readArguments() {
  const usage = `Usage: npm run chaos -- ${scenarioNames.join('|')} [--seed N] [--quick] [--json] [--history file]`
  const options = {
    seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 32)) },
    quick: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    history: { type: 'string' },
  }
  try {
    const { values, positionals } = parseArgs({ options, allowPositionals: true })
    const seed = Number(values.seed)
    if (positionals.length === 1 && scenarioNames.includes(positionals[0]) && Number.isInteger(seed) && seed >= 0)
      return { ...values, seed, scenario: positionals[0] }
    console.error(usage)
  } catch (error) {
    console.error(`${error.message}\n${usage}`)
  }
  process.exit(2)
}

async function main({ scenario, seed, quick, json, history: file }) {
  const { plans, run, present } = await import(`./scenarios/${scenario}.mjs`)
  const history = createHistory(file)
  const began = nowUs()
  // Every command of a worker passes through this process: what it is late itself, it makes the workers late.
  const delay = monitorEventLoopDelay({ resolution: 10 })
  delay.enable()
  const result = await run({ plan: plans[quick ? 'quick' : 'full'], random: createRandom(seed), history, report })
  history.close()
  delay.disable()
  const late = { p99Ms: delay.percentile(99) / 1e6, maxMs: delay.max / 1e6, load: loadavg()[0] }
  const told = { scenario, seed, tookMs: (nowUs() - began) / 1000, late, result, shown: present(result) }
  if (json) printJson(told)
  else printReport(told)
  return result.violations.length === 0

  function report(progress) {
    console.error(`${((nowUs() - began) / 1e6).toFixed(0)} s: ${progress}`)
  }
}
