/** The first screen of `busbar up`: what runs, where, and what to try next. */
import { describeConfig, describeSettings } from '../config.ts'
import { invocation, shellWord, shownPath } from './invocation.ts'
import type { Session } from './session.ts'
import { version } from './version.ts'

export interface Running {
  url: string
  redis: string
  namespace: string
  partitions: number
  /** Absolute. */
  dataDir: string
  tokenFile: string
}

export function runningJson(running: Running): Record<string, unknown> {
  return { time: new Date().toISOString(), level: 'info', event: 'up', version, pid: process.pid, ...running }
}

export function runningLines(running: Running, session: Session): string[] {
  const { bold, dim, cyan } = session.out.colors
  const short = (path: string) => shownPath(path, session.io.cwd)
  const facts = [
    ['HTTP', running.url],
    ['Redis', running.redis],
    ['Namespace', `${running.namespace}, ${running.partitions} partitions`],
    ['Data', short(running.dataDir)],
    ['Token', short(running.tokenFile)],
  ] as const
  return [
    bold(`Busbar ${version} is running.`),
    '',
    ...facts.map(([name, value]) => `  ${dim(name.padEnd(9))}  ${value}`),
    '',
    'Try next, in a second terminal:',
    '',
    ...commandsToTry(running, session).map((line) => `  ${cyan(line)}`),
    '',
    dim('Ctrl-C stops it. The log:'),
  ]
}

export function commandsToTry({ url, tokenFile }: Running, session: Session): string[] {
  const call = invocation(session.io)
  const same = sameSettings(session)
  const token = shellWord(shownPath(tokenFile, session.io.cwd))
  return [
    `${call} publish order.paid '{"total":42}' --key order:42${same}`,
    `${call} tail 'order.*' --since beginning${same}`,
    `curl ${url}/v1/events -H "Authorization: Bearer $(cat ${token})" \\`,
    `  -H 'Content-Type: application/json' -d '{"type":"order.paid","key":"order:42","data":{"total":43}}'`,
  ]
}

/** Flags that another process must be given to meet this one; file and environment it finds by itself. */
function sameSettings({ config }: Session): string {
  const shared: readonly string[] = ['config', 'redis', 'dataDir', 'namespace']
  const flags = new Map(describeSettings().map(({ name, flag }) => [name, flag]))
  return describeConfig(config)
    .filter(({ name, source }) => source === 'flag' && shared.includes(name))
    .map(({ name, value }) => ` ${flags.get(name)} ${shellWord(value)}`)
    .join('')
}
