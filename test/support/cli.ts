/**
 * The command line: as a person or a script runs it, in a process of its own, or called in this one, which costs a
 * hundredth and can be given a terminal.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { main } from '../../src/cli/main.ts'
import { guard } from './guard.ts'
import { type Child, spawnNode } from './process.ts'

const mainUrl = new URL('../../dist/cli/main.js', import.meta.url)
export const mainFile = fileURLToPath(mainUrl)

export interface Ended {
  code: number | null
  stdout: string
  stderr: string
}

export interface CliOptions {
  input?: string | Uint8Array
  env?: Readonly<Record<string, string>>
  cwd?: string
}

/** Runs a command to its end, in a process. */
export async function runCli(args: readonly string[], { input = '', env = {}, cwd }: CliOptions = {}): Promise<Ended> {
  const child = spawn(process.execPath, [mainFile, ...args], { env: { ...process.env, ...env }, cwd })
  child.once('exit', guard(child.pid!))
  const [stdout, stderr] = [collect(child.stdout), collect(child.stderr)]
  child.stdin.on('error', () => {})
  child.stdin.end(input)
  const [code] = await once(child, 'close')
  return { code, stdout: stdout(), stderr: stderr() }
}

/** Starts a command that goes on until it is told to end, in a process. */
export function startCli(args: readonly string[], env: Readonly<Record<string, string>> = {}): Child {
  const child = spawnNode(mainUrl, { args, env })
  onTestFinished(() => child.kill())
  return child
}

/** Runs a command to its end in this process; with `columns`, on a terminal that wide. */
export async function callCli(
  args: readonly string[],
  { input = '', env = {}, cwd = '/', columns }: CliOptions & { columns?: number } = {},
): Promise<Ended> {
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() }
  const terminal = columns === undefined ? {} : { isTTY: true, columns }
  const [stdout, stderr] = [collect(streams.stdout), collect(streams.stderr)]
  streams.stdin.end(input)
  Object.assign(streams.stdin, terminal)
  Object.assign(streams.stdout, terminal)
  Object.assign(streams.stderr, terminal)
  const code = await main({ argv: args, env, cwd, ...streams })
  return { code, stdout: stdout(), stderr: stderr() }
}

function collect(stream: NodeJS.ReadableStream): () => string {
  const chunks: Buffer[] = []
  stream.on('data', (chunk) => chunks.push(chunk))
  return () => Buffer.concat(chunks).toString()
}

/** One JSON object per line. */
export function jsonLines(text: string): Record<string, unknown>[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))
}
