/**
 * `busbar worker MODULE…`: runs what an application has declared, in a process of its own.
 *
 *   loading    the modules are found and loaded, the buses among their exports picked out, names checked
 *   starting   Redis is reached, each bus runs; what the log has to say waits, unless it is a warning
 *   running    what runs has been said; log lines follow; with --drain until nothing is left in the queues
 *   stopping   asked to end: every bus finishes what it has begun, all at once
 *
 * Nothing is started before everything is loaded and every name is known.
 */
import type { Bus } from '../../bus.ts'
import { describeSettings, type SettingName } from '../../config.ts'
import { checkDeclared } from '../../declared.ts'
import { BusbarError } from '../../errors.ts'
import type { Left } from '../../index.ts'
import { findBuses, findModules, loadModules } from '../app-modules.ts'
import { sayDrained } from '../drained.ts'
import { type ExitCode, exitCodes } from '../exit.ts'
import { createHeldLog, type HeldLog } from '../held-log.ts'
import type { AddCommand } from '../program.ts'
import { reachRedis, type Session } from '../session.ts'
import { onEndRequest, whenAborted } from '../signals.ts'
import { type RunningBus, workerJson, workerLines } from '../worker-screen.ts'

interface Options {
  only?: string[]
  drain?: boolean
}

interface Planned {
  bus: Bus
  /** What of it is to run. */
  runs: readonly string[]
  only: boolean
  log: HeldLog
}

export const addWorker: AddCommand = (program, run) => {
  program
    .command('worker')
    .description('run what the buses that these modules export have declared')
    .argument('<modules...>', "TypeScript or JavaScript, by path or pattern: ./app.ts './jobs/*.ts'")
    .option('--only <names>', 'run only these, separated by commas', readNames)
    .option('--drain', 'end when nothing is left to do in the queues')
    .action(run(worker))
}

const closeTimeoutMs = 10_000
const lingerMs = 500

const readNames = (value: string, before: string[] = []): string[] => [
  ...before,
  ...value.split(',').map((name) => name.trim()),
]

async function worker(session: Session, paths: string[], { only, drain = false }: Options) {
  checkFlags(session)
  const { cwd } = session.io
  using end = onEndRequest()
  const modules = findModules(paths, cwd)
  try {
    const loaded = await Promise.race([loadModules(modules, cwd), end.whenAsked])
    if (!loaded) return exitCodes.ok
    const planned = plan(findBuses(loaded, modules, cwd), only, session)
    const asked = Promise.race([end.whenAsked, whenAborted(session.out.closed)])
    return await runUntilAsked(planned, { modules, drain }, session, asked)
  } finally {
    // What else the modules have opened would keep the process alive; what is still being printed gets a moment.
    setTimeout(() => process.exit(), lingerMs).unref()
  }
}

// What a worker itself reads; all else is the buses' own.
const ownSettings: readonly SettingName[] = ['config', 'log.level']

/** Flags that would be without effect: where Redis is, and the rest, the modules have told their buses. */
function checkFlags({ config }: Session): void {
  const problems = describeSettings()
    .filter(({ name }) => config.effective[name].source === 'flag' && !ownSettings.includes(name))
    .map(({ name, flag }) =>
      name.startsWith('http.')
        ? `${flag} has no effect: a worker opens no HTTP door, \`busbar up\` does`
        : `${flag} has no effect: set it in the module, busbar({ ${optionText(name)} })`,
    )
  if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
}

/** `publish.timeout` as `publish: { timeout: … }`. */
function optionText(name: string): string {
  const [first, second] = name.split('.')
  return second === undefined ? `${first}: …` : `${first}: { ${second}: … }`
}

/** A bus of which nothing is named does not run. */
function plan(buses: readonly Bus[], only: readonly string[] | undefined, session: Session): Planned[] {
  const declared = buses.flatMap((bus) => bus.declared())
  if (only) checkDeclared(only, declared)
  return buses
    .map((bus) => ({ bus, runs: bus.declared().filter((name) => only?.includes(name) ?? true) }))
    .filter(({ runs }) => !only || runs.length > 0)
    .map(({ bus, runs }) => ({ bus, runs, only: only !== undefined, log: createHeldLog(session) }))
}

async function runUntilAsked(
  planned: readonly Planned[],
  { modules, drain }: { modules: readonly string[]; drain: boolean },
  session: Session,
  asked: Promise<void>,
): Promise<ExitCode> {
  const { out } = session
  try {
    const buses = await Promise.race([Promise.all(planned.map(start)), asked])
    if (!buses) return exitCodes.ok
    if (out.json) await out.printJson(workerJson({ modules, buses }))
    else for (const line of workerLines({ modules, buses }, session)) await out.print(line)
    for (const { log } of planned) log.release()
    const left = await Promise.race([drain ? drained(planned) : asked, asked])
    if (left) return await sayDrained(session, left)
    if (!out.json) out.note(out.errorColors.dim('Stopping; once more to stop at once.'))
    return exitCodes.ok
  } finally {
    await Promise.all(planned.map(({ bus }) => bus.close({ timeout: closeTimeoutMs })))
  }
}

const drained = async (planned: readonly Planned[]): Promise<Left[]> =>
  (await Promise.all(planned.map(({ bus }) => bus.drained()))).flat()

async function start({ bus, runs, only, log }: Planned): Promise<RunningBus> {
  bus.telemetry.listen(log.listener)
  await reachRedis(bus)
  await bus.run({ ...(only ? { only: runs } : {}), signals: false })
  return { namespace: bus.namespace, worker: bus.worker, runs }
}
