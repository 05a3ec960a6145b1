/** `busbar publish --file`: the file, the progress bar and the summary around publish-lines.ts. */
import { open } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { BusbarError, shown } from '../errors.ts'
import { type ExitCode, exitCodes } from './exit.ts'
import type { Output } from './output.ts'
import { printable } from './printable.ts'
import { bar, createProgress } from './progress.ts'
import { type LineFailure, type PublishLinesEnd, publishLines, ranges, type Tally } from './publish-lines.ts'
import { reachRedis, type Session } from './session.ts'
import { onEndRequest } from './signals.ts'

// Data of 256 KiB, every other field at its limit and fully escaped, and room for spaces.
const maxLineBytes = 1024 * 1024
const maxInFlight = 1_000
const maxBytesInFlight = 8 * 1024 * 1024

export async function publishFile(session: Session, path: string, { strict }: { strict: boolean }): Promise<ExitCode> {
  const { io, out, config } = session
  const { source, size } = path === '-' ? { source: io.stdin, size: undefined } : await openFile(path)
  using end = onEndRequest()
  const began = performance.now()
  let tally: Tally = { published: 0, duplicates: 0, failed: 0, bytesRead: 0 }
  using progress = createProgress(io, out, () => progressText(tally, size, performance.now() - began))

  const ended = await session.withBus(async (bus) => {
    await Promise.race([reachRedis(bus), end.whenAsked])
    return publishLines({
      bus,
      source,
      maxLineBytes,
      maxInFlight: Math.min(maxInFlight, config.publish.maxWaiting),
      // One more line may come on top before it is full.
      maxBytesInFlight: Math.min(maxBytesInFlight, config.publish.maxWaitingBytes - maxLineBytes / 2),
      strict,
      signal: end.asked,
      failed(failure) {
        progress.clear()
        sayFailure(failure, out)
      },
      progressed(reached) {
        tally = reached
        progress.update()
      },
    })
  })
  source.destroy()
  progress.clear()
  await saySummary(ended, performance.now() - began, out)
  if (ended.fault) throw ended.fault.error
  return ended.failed > 0 || ended.stopped ? exitCodes.failed : exitCodes.ok
}

async function openFile(path: string): Promise<{ source: Readable; size: number | undefined }> {
  try {
    const file = await open(path)
    const found = await file.stat()
    if (found.isDirectory()) throw Object.assign(new Error(), { code: 'EISDIR' })
    const source = file.createReadStream({ highWaterMark: 256 * 1024 })
    return { source, size: found.isFile() ? found.size : undefined }
  } catch (error) {
    const problem = `cannot be read (${(error as NodeJS.ErrnoException).code})`
    throw BusbarError.of('PARAMETER_INVALID', { name: 'file', value: shown(path), problem }, error)
  }
}

const grouped = (n: number): string => n.toLocaleString('en-US')
const perSecond = (n: number, ms: number): number => Math.round(n / Math.max(ms / 1000, 0.001))

function progressText({ published, failed, bytesRead }: Tally, size: number | undefined, ms: number): string {
  const share = size ? `${bar(bytesRead / size, 20)} ${Math.floor((100 * bytesRead) / size)} %  ` : ''
  const failures = failed > 0 ? `  ${grouped(failed)} failed` : ''
  return `${share}${grouped(published)} published${failures}  ${grouped(perSecond(published, ms))}/s`
}

function sayFailure({ line, code, message }: LineFailure, out: Output): void {
  if (out.json) out.note(JSON.stringify({ line, error: { code, message } }))
  else out.note(`${out.errorColors.red(`line ${line}: ${code}:`)} ${printable(message)}`)
}

async function saySummary(ended: PublishLinesEnd, ms: number, out: Output): Promise<void> {
  const { published, duplicates, failed, stopped, fault } = ended
  const rate = perSecond(published, ms)
  if (out.json) {
    const unanswered = fault && { unanswered: ranges(fault.lines) }
    return out.printJson({ published, duplicates, failed, stopped, ...unanswered, tookMs: Math.round(ms), rate })
  }
  if (fault) out.note(`Lines without an answer: ${ranges(fault.lines)}`)
  if (stopped) out.note('Stopped: the rest was not published.')
  const already = duplicates > 0 ? ` (${grouped(duplicates)} were there already)` : ''
  const failures = failed > 0 ? out.colors.red(`${grouped(failed)} failed`) : '0 failed'
  const took = `${(ms / 1000).toFixed(1)} s, ${grouped(rate)}/s`
  await out.print(`${grouped(published)} published${already}, ${failures}  ${out.colors.dim(took)}`)
}
